#!/bin/sh
# Builds the agent, and starts a guest of the lab with a shell on a box (tests/lab/README.md).
set -eu
cd "$(dirname "$0")/../.."
cargo build --workspace --bin holdfast --locked
lab=$PWD/tests/lab
target=$(realpath "${CARGO_TARGET_DIR:-target}")
share=$(mktemp -d)
trap 'rm -r "$share"' EXIT
cc -O2 -shared -fPIC -o "$share/fp_state.so" "$lab/fp_state.c"
clients=$target/clients
LD_PRELOAD=$share/fp_state.so linux.uml mem=1G root=/dev/root rootfstype=hostfs rootflags=/ ro quiet con=null \
    con0=fd:0,fd:1 init="$lab/init" lab_share="$share" lab_shell="$lab/box" lab_binaries="$target/debug:$clients" \
    TERM="${TERM:-linux}" 2>/dev/null
