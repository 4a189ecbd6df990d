#!/bin/bash
# The Debian package of the test build: made twice and compared, its layout, what lintian says, and its life in a root folder
# of its own. To be run by private.sh: dpkg wants to be root.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=${CARGO_TARGET_DIR:-target}/debug/holdfast
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "package: $*" >&2
    exit 1
}

# make FILE: the package of the test build, compressed less than one that is published.
make() {
    packaging/deb.sh "$program" "$work/$1" --deb-version 1.0.0-1 --fast >/dev/null
}

# later FILE: the same package as a later version.
later() {
    dpkg-deb --raw-extract "$work/one.deb" "$work/later"
    sed -i 's/^Version: .*/Version: 2.0.0-1/' "$work/later/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$work/later" "$work/$1" >/dev/null
}

# in_root ARGUMENT...: dpkg in the root folder. Its scripts run here, and act on the folder alone (DPKG_ROOT).
root=$work/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
in_root() {
    dpkg --root="$root" --force-script-chrootless --force-depends --force-confold --force-not-root "$@" >"$work/log" 2>&1
}

installed() {
    dpkg-query --root="$root" --show --showformat='${Status} ${Version}' holdfast 2>/dev/null || true
}

make one.deb
make again.deb
cmp "$work/one.deb" "$work/again.deb" || fail "two runs make two packages"
later two.deb

# The layout: mode and path of each file, those of the pages of commands aside.
dpkg-deb --contents "$work/one.deb" | awk '$1 !~ /^d/ { print $1, $2, $6 }' | sort -k3 >"$work/layout"
pages=$(grep -c 'man8/holdfast.*\.8\.gz' "$work/layout")
[ "$pages" -gt 40 ] || fail "only $pages pages of the manual"
grep -v 'man8/holdfast-' "$work/layout" | diff tests/data/package.txt - || fail "the layout is not that of tests/data/package.txt"
dpkg-deb --ctrl-tarfile "$work/one.deb" | tar -x -C "$work"
grep -qx /etc/holdfast/holdfast.toml "$work/conffiles" || fail "the configuration file is no conffile"
dpkg-deb --field "$work/one.deb" Depends | grep -q 'libc6 (>= ' || fail "the package needs no C library"
changelog=./usr/share/doc/holdfast/changelog.Debian.gz
newest=$(dpkg-deb --fsys-tarfile "$work/one.deb" | tar -x --to-stdout "$changelog" | gunzip | sed -n 1p)
[[ $newest == "holdfast (1.0.0-1) "* ]] || fail "the newest version of the changelog is: $newest"

# What Debian's own check says of it. The package is not uploaded to Debian, so there is no bug report that asks for it.
# Warnings are shown, since each version of lintian knows new ones.
lintian --allow-root --fail-on error --suppress-tags initial-upload-closes-no-bugs "$work/one.deb" || fail "lintian finds errors"

# The first installation.
in_root --install "$work/one.deb" || fail "not installed: $(cat "$work/log")"
[ "$(installed)" = "install ok installed 1.0.0-1" ] || fail "after the installation: $(installed)"
grep -q 'systemctl enable --now holdfast' "$work/log" || fail "the commands to start are not named: $(cat "$work/log")"
[ ! -e "$root/etc/systemd/system/multi-user.target.wants/holdfast.service" ] || fail "the unit was enabled"
"$root/usr/bin/holdfast" check-config "$root/etc/holdfast/holdfast.toml"
"$root/usr/bin/holdfast" --version | grep -q '^holdfast '

# An upgrade keeps what the operator has written and what the agent has stored.
sed -i 's/^#log-level = .*/log-level = "debug"/' "$root/etc/holdfast/holdfast.toml"
"$root/usr/bin/holdfast" user set ann --role admin --no-password --config /dev/null --state-dir "$root/var/lib/holdfast"
in_root --install "$work/two.deb" || fail "not upgraded: $(cat "$work/log")"
[ "$(installed)" = "install ok installed 2.0.0-1" ] || fail "after the upgrade: $(installed)"
grep -q '^log-level = "debug"' "$root/etc/holdfast/holdfast.toml" || fail "the configuration file was replaced"
if grep -q 'enable --now' "$work/log"; then fail "an upgrade is taken for an installation"; fi

# A downgrade to a version that reads the state, and one to a version that does not.
read -r format version <"$root/var/lib/holdfast/format"
[ -n "$version" ] || fail "the agent has not noted its version"
in_root --install "$work/one.deb" || fail "not downgraded: $(cat "$work/log")"
in_root --install "$work/two.deb" || fail "not upgraded again: $(cat "$work/log")"
echo "$((format + 1)) 9.9.9" >"$root/var/lib/holdfast/format"
if in_root --install "$work/one.deb"; then fail "a version that cannot read the state was installed"; fi
grep -q "version 9.9.9 of the agent has written" "$work/log" || fail "the refusal gives no reason: $(cat "$work/log")"
[ "$(installed)" = "install ok installed 2.0.0-1" ] || fail "after the refused downgrade: $(installed)"
echo "$format $version" >"$root/var/lib/holdfast/format"

# A removal keeps the state and the configuration, a purge removes them and the links of `holdfast unit`.
mkdir -p "$root/etc/systemd/system/holdfast.service.d"
ln -s /usr/lib/holdfast/unit.d/10-dhcp.conf "$root/etc/systemd/system/holdfast.service.d/"
in_root --remove holdfast || fail "not removed: $(cat "$work/log")"
[ -e "$root/var/lib/holdfast/holdfast.redb" ] || fail "a removal takes the state along"
[ -e "$root/etc/holdfast/holdfast.toml" ] || fail "a removal takes the configuration along"
[ ! -e "$root/usr/bin/holdfast" ] || fail "the program is still there"
in_root --purge holdfast || fail "not purged: $(cat "$work/log")"
grep -q 'stay in the kernel' "$work/log" || fail "a purge does not say what becomes of the network: $(cat "$work/log")"
for path in /var/lib/holdfast /etc/holdfast /etc/systemd/system/holdfast.service.d /usr/lib/holdfast; do
    [ ! -e "$root$path" ] || fail "a purge leaves $path"
done
echo "package: made, installed, upgraded, downgraded, removed and purged"
