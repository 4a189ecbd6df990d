#!/bin/sh
# Makes the container image of an agent that is built: `build.sh BINARY [IMAGE]`.
# CONTAINER_TOOL is the program that makes it: podman, docker, or whatever takes the same `build`.
set -eu
binary=$1
image=${2:-holdfast:latest}
here=$(cd "$(dirname "$0")" && pwd)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
root=$context/root

# `tmp` and `run` are there for a container whose root is read-only: something is mounted on them.
mkdir -p "$root/usr/bin" "$root/etc/holdfast" "$root/var/lib/holdfast" "$root/run" "$root/tmp"
chmod 1777 "$root/tmp"
chmod 0700 "$root/var/lib/holdfast"
strip -o "$root/usr/bin/holdfast" "$binary"
# The loader and each library, at the places where the binary looks for them.
ldd "$root/usr/bin/holdfast" | grep -o '/[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
cp "$here/../holdfast.toml" "$root/etc/holdfast/holdfast.toml"
# The owner of the files of the agent.
echo 'root:x:0:0:root:/:/' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
cp "$here/Containerfile" "$context/Containerfile"

tool=${CONTAINER_TOOL:-}
for candidate in podman docker; do
    if [ -z "$tool" ] && command -v "$candidate" >/dev/null; then tool=$candidate; fi
done
if [ -z "$tool" ]; then
    echo "build.sh: neither podman nor docker is installed" >&2
    exit 1
fi
case $tool in
# An image of the OCI has no health check.
*podman) "$tool" build --quiet --isolation chroot --format docker --tag "$image" --file "$context/Containerfile" "$context" ;;
*) "$tool" build --quiet --tag "$image" --file "$context/Containerfile" "$context" ;;
esac
