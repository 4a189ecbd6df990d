#!/bin/sh
# Installs the Debian packages that are missing: `setup.sh build` what the agent is built with, `setup.sh try`,
# `setup.sh deb`, `setup.sh book`, `setup.sh lab` and `setup.sh test` what these need on top. Without root it names them, and the command that installs them.
set -eu

missing=

# need PACKAGE PROBE...: the package is missing unless the probe succeeds.
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

need build-essential cc --version
need cmake cmake --version
need libpcre2-dev test -e /usr/include/pcre2.h
need pkg-config pkg-config --version
case ${1:-build} in
try)
    need iproute2 ip -V
    need util-linux unshare --version
    need dnsmasq-base dnsmasq --version
    ;;
deb)
    need dpkg-dev dpkg-shlibdeps --version
    ;;
book)
    need python3 python3 --version
    ;;
lab)
    need iproute2 ip -V
    need user-mode-linux linux.uml --version
    need kmod modprobe --version
    ;;
test)
    need iproute2 ip -V
    need util-linux unshare --version
    need git git --version
    need dnsmasq-base dnsmasq --version
    need faketime faketime --version
    need e2fsprogs mke2fs -V
    need openssh-server test -x /usr/sbin/sshd
    need openssh-client ssh -V
    need sshpass sshpass -V
    # For `systemd-analyze security` alone: nothing of it runs.
    need systemd systemd-analyze --version
    # The probe makes an environment's core: `venv` alone is there without its package, and cannot.
    need python3-venv python3 -c 'import ensurepip, venv'
    # Recipes of the guide (recipes.py).
    need curl curl --version
    # Shells whose completion is tried, and a terminal to try it at.
    need zsh zsh --version
    need fish fish --version
    need bsdutils script --version
    # The Debian package.
    need dpkg-dev dpkg-shlibdeps --version
    need lintian lintian --version
    # The lab (tests/lab/README.md).
    need user-mode-linux linux.uml --version
    need kmod modprobe --version
    # Containers (container.py). Without a network of podman's own, so none of its helpers are needed.
    need podman podman --version
    need runc runc --version
    # Root folders of the boxes that systemd runs (service_manager.py), and what these tests use of the host.
    need mmdebstrap mmdebstrap --version
    need openssl openssl version
    need chromium chromium --version
    need chromium-driver chromedriver --version
    ;;
esac

if ! command -v cargo >/dev/null; then
    echo "setup: Rust is missing: https://rustup.rs installs it, version 1.95 or newer" >&2
    exit 1
fi
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "setup: missing:$missing" >&2
    echo "setup: this installs them: sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# One apt works at a time, and a machine often has another one: unattended upgrades, or a second checkout. Ten minutes are
# longer than those take, and short enough to find out about one that hangs.
lock_seconds=600
# Seconds between two looks at a lock.
lock_pause=5

# apt ARGUMENT...: apt waits for the lock of dpkg by itself, and ends at once on those of the lists and of the downloads.
apt() {
    give_up=$(($(date +%s) + lock_seconds))
    while ! { errors=$(LC_ALL=C apt-get -o DPkg::Lock::Timeout="$lock_seconds" "$@" 2>&1 >&3 3>&-); } 3>&1; do
        case $errors in
        *"Could not get lock"*) ;;
        *) give_up=0 ;;
        esac
        if [ "$(date +%s)" -ge "$give_up" ]; then
            echo "$errors" >&2
            return 1
        fi
        echo "setup: another apt is at work; waiting for it"
        sleep "$lock_pause"
    done
}

apt update -qq
# shellcheck disable=SC2086 # one argument for each package
apt install -y -qq --no-install-recommends $missing
