#!/bin/sh
# Builds the agent, and starts a guest of the lab with a shell on a box (tests/lab/README.md).
set -eu
cd "$(dirname "$0")/../.."
cargo build --workspace --bin holdfast --bin lab --locked
exec "${CARGO_TARGET_DIR:-target}/debug/lab"
