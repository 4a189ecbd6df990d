#!/bin/sh
# Makes the Debian package of a program that is built: `deb.sh PROGRAM OUTPUT.deb [OPTION of cargo-deb]...`. The same program
# makes the same package, byte for byte: all files have the time SOURCE_DATE_EPOCH, by default that of the commit.
set -eu
program=$(realpath "$1")
output=$(realpath -m "$2")
shift 2
cd "$(dirname "$0")/.."

cargo_deb=${CLIENTS:-target/clients}/cargo-deb/bin/cargo-deb
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)
fi
export SOURCE_DATE_EPOCH

# What follows from the program itself. The assets in agent/daemon/Cargo.toml name this folder.
stage=target/deb
rm -rf "$stage"
mkdir -p "$stage/services" "$stage/scripts"
"$program" package-files "$stage"
strip -o "$stage/holdfast" "$program"
for package in packaging/services/*/; do
    "$program" service pack "$package" --output "$stage/services" >/dev/null
done
format=$(cat "$stage/format")
for script in preinst postinst prerm postrm; do
    sed "s/@FORMAT@/$format/" "packaging/debian/$script" >"$stage/scripts/$script"
done
# cargo-deb gives the package this version, unless an option gives it another one.
version=$(cargo pkgid --locked --package holdfast | sed 's/.*[#@]//')-1
previous=
for argument in "$@"; do
    [ "$previous" != --deb-version ] || version=$argument
    previous=$argument
done
maintainer=$(sed -n 's/^maintainer = "\(.*\)"$/\1/p' agent/daemon/Cargo.toml)
# The history of changes is that of the repository. The package says which program it has.
cat >"$stage/changelog" <<TEXT
holdfast ($version) unstable; urgency=medium

  * Package of $("$program" --version).

 -- $maintainer  $(LC_ALL=C date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")
TEXT
packaging/linked.sh licenses | gzip -9n >"$stage/LICENSES.gz"
packaging/linked.sh sbom >"$stage/sbom.cdx.json"

"$cargo_deb" --manifest-path agent/daemon/Cargo.toml --no-build --no-strip --locked --quiet --output "$output" "$@"
