#!/bin/sh
# Builds the agent and the playground, and starts it: as root as it is, else in a user namespace whose root is
# the caller. The agent's own sockets stay in the network that this script was started in.
set -eu
cd "$(dirname "$0")/../.."
cargo build --workspace --bin holdfast --bin try --locked
playground=${CARGO_TARGET_DIR:-target}/debug/try
if [ "$(id -u)" = 0 ]; then exec "$playground"; fi
TRY_USER_NAMESPACE=1 exec unshare --map-root-user "$playground"
