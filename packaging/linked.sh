#!/bin/sh
# Says what is linked into the agent, for the documentation of a package: `linked.sh licenses` prints the texts of all
# licenses, each once, with the crates that have it; `linked.sh sbom` prints a bill of materials (CycloneDX 1.5).
set -eu
cd "$(dirname "$0")/.."
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
# Folders in a crate between its own and that of a license: C libraries have theirs in their own sources.
depth=3

# Name, version and license of each crate, a line each. A crate of the workspace has a path behind its version, and is
# left out. So are crates that only run while the agent is built, such as macros.
crates() {
    cargo tree --locked --package holdfast --edges normal,no-proc-macro --target "$(rustc -vV | sed -n 's/^host: //p')" \
        --prefix none --no-dedupe --format '{p}	{l}' |
        grep -v '(/' | sed 's/ v/\t/; s, */ *, OR ,g' | LC_ALL=C sort -u
}

# texts: each text of a license in a file that is named by its digest, with its crates beside it.
texts() {
    crates | while IFS='	' read -r name version license; do
        found=
        for source in "$registry"/*/"$name-$version"; do
            [ -d "$source" ] || continue
            find "$source" -maxdepth "$depth" -type f \
                \( -iname 'license*' -o -iname 'licence*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'copyright*' \) \
                ! -name '*.rs' ! -name '*.toml' | LC_ALL=C sort >"$work/files"
            while read -r file; do
                digest=$(sha256sum "$file" | cut -d ' ' -f 1)
                cp "$file" "$work/$digest.text"
                echo "$name $version" >>"$work/$digest.crates"
                found=1
            done <"$work/files"
            break
        done
        [ -n "$found" ] || echo "$name $version ($license)" >>"$work/without"
    done
}

licenses() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    texts
    echo "Licenses of the crates that the program contains. Where a crate has several, all are here."
    if [ -e "$work/without" ]; then
        printf '\nThese crates name a license, and have no text of it:\n\n'
        cat "$work/without"
    fi
    for text in "$work"/*.text; do
        printf '\n%s\n\n' '----------------------------------------'
        LC_ALL=C sort -u "${text%.text}.crates"
        echo
        cat "$text"
    done
}

sbom() {
    version=$(cargo pkgid --locked --package holdfast | sed 's/.*[#@]//')
    printf '{"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,\n'
    printf ' "metadata": {"component": {"type": "application", "name": "holdfast", "version": "%s"}},\n "components": [\n' "$version"
    crates | awk -F '\t' '{
        printf "%s  {\"type\": \"library\", \"name\": \"%s\", \"version\": \"%s\",", separator, $1, $2
        printf " \"licenses\": [{\"expression\": \"%s\"}], \"purl\": \"pkg:cargo/%s@%s\"}", $3, $1, $2
        separator = ",\n"
    }'
    printf '\n]}\n'
}

case ${1:-} in
licenses) licenses ;;
sbom) sbom ;;
*)
    echo "linked: say licenses or sbom" >&2
    exit 2
    ;;
esac
