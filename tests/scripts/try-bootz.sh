#!/bin/sh
# Builds the agent and a box to bootstrap, and bootstraps it where network namespaces can be made.
set -eu
cd "$(dirname "$0")/../.."
cargo build --workspace --bins
exec tests/scripts/private.sh "${CARGO_TARGET_DIR:-target}/debug/try_bootz"
