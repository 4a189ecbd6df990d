#!/bin/sh
# Runs a command where it may make network namespaces: as it is for root, else in a user namespace in which
# the caller is root, with a network, a host name and a /run of its own.
set -eu
if [ "$(id -u)" = 0 ]; then exec "$@"; fi
# shellcheck disable=SC2016 # the inner shell expands
exec unshare --map-root-user --net --uts --mount sh -c 'mount -t tmpfs tmpfs /run && exec "$@"' private "$@"
