#!/bin/sh
# Holds the linked crates against deny.toml: licenses, banned crates and where they come from; and against the advisories of
# RustSec, where their database can be had.
set -eu
cd "$(dirname "$0")/../.."
tests/scripts/clients.sh deny
deny=${CLIENTS:-target/clients}/deny/bin/cargo-deny

"$deny" --locked check --hide-inclusion-graph bans licenses sources
if "$deny" --locked fetch db; then
    "$deny" --locked check --hide-inclusion-graph --disable-fetch advisories
else
    echo "deny: the database of advisories cannot be had here, so none was looked up"
fi
