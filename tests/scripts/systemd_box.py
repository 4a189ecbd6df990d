"""A Debian root folder in a container whose first process is systemd, with ports to a network namespace of a test.

A container without a network of podman's own leaves the host as it is: the default network of podman would switch the
forwarding of the host on and write firewall rules. So each box has a network namespace of its own, with veth pairs
`eth0` and `eth1` to `port0` and `port1` in a second namespace, the far one.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

# Packages of each root folder: the service manager, what the package of the agent depends on, and what the tests use.
PACKAGES = [
    "systemd", "systemd-sysv", "dbus", "udev", "kmod", "iproute2", "iputils-ping", "libpcre2-8-0", "network-manager",
    "ifupdown",
]
# root of a container that runs in a container itself may not raise these limits. The unit asks for 8192 open files.
LIMITS = ["--ulimit", "nofile=9000:20000", "--ulimit", "nproc=4096:4096"]
# The environment of commands in a box, in place of that of the test.
ENVIRONMENT = ["env", "--ignore-environment", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]
# Seconds until something has to have happened: a start takes one, on a busy machine many more.
PATIENCE = 120
# Seconds between two looks at something that is waited for.
PAUSE = 0.1
# Seconds that a command may take: making a root folder takes twenty on a quiet machine.
COMMAND_LIMIT = 600
# Answered pings in a second below which a stream was held up, and proves too little. Quiet machines have some hundred.
LEAST_PINGS = 20

# Set when the test is to end before its time. Every wait and every command then fails.
ended = threading.Event()


class Failure(Exception):
    """The package or a box does something wrong; the text says what."""


def fail(message):
    raise Failure(message)


def check(holds, message):
    if not holds:
        fail(message)


def attempt(*command, **options):
    """The ended command, with its output as text."""
    check(not ended.is_set(), "the test was ended")
    command = list(map(str, command))
    end = {"timeout": COMMAND_LIMIT, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, capture_output=True, text=True, **end, **options)


def call(*command, **options):
    """Output of a command; its error ends the test."""
    done = attempt(*command, **options)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def eventually(what, is_so, why_not=lambda: ""):
    """Waits until a function gives something that is true, and returns that. `why_not` tells why it does not."""
    end = time.monotonic() + PATIENCE
    while True:
        found = is_so()
        if found:
            return found
        if ended.wait(PAUSE) or time.monotonic() > end:
            fail(f"not within {PATIENCE} s: {what} {why_not()}")


def root_archive(release):
    """The archive of a root folder, made once for each release and list of packages.

    Remove the file to get newer packages.
    """
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "holdfast/roots"
    archive = cache / f"{'+'.join([release, *PACKAGES])}.tar"
    if archive.exists():
        return archive
    cache.mkdir(parents=True, exist_ok=True)
    # Another name until it is whole, so that a broken attempt is not taken for a root folder.
    attempted = cache / f"{release}-{os.getpid()}.tar"
    # A mirror that keeps old states of the archive has lists whose dates are over.
    options = ["--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"', f"--include={','.join(PACKAGES)}"]
    try:
        call("mmdebstrap", *options, release, attempted)
        attempted.rename(archive)
    finally:
        attempted.unlink(missing_ok=True)
    return archive


def unpack_root(release, root):
    """Makes a root folder."""
    root.mkdir()
    call("tar", "--extract", "--preserve-permissions", "--file", root_archive(release), "--directory", root)
    # Only the tests of NetworkManager start it: it configures all ports that nobody has configured. Without it, its
    # second unit holds network-online.target back for a minute.
    call("systemctl", "--root", root, "mask", "NetworkManager.service", "NetworkManager-wait-online.service")


class Box:
    """A box in a container, with a folder `share` that it sees as /share."""

    PORTS = {"eth0": "port0", "eth1": "port1"}

    def __init__(self, release, folder):
        self.release = release
        self.name = f"{release}-{os.getpid()}"
        self.namespace = f"holdfast-{self.name}"
        self.far = f"holdfast-far-{self.name}"
        self.root = folder / f"root-{release}"
        self.share = folder / "share"
        self.folder = folder

    def start(self):
        unpack_root(self.release, self.root)
        for namespace in (self.namespace, self.far):
            call("ip", "netns", "add", namespace)
            call("ip", "-n", namespace, "link", "set", "lo", "up")
        for port, far in self.PORTS.items():
            peer = ["peer", "name", port, "netns", self.namespace]
            call("ip", "-n", self.far, "link", "add", far, "type", "veth", *peer)
            call("ip", "-n", self.far, "link", "set", far, "up")
        network = ["--network", f"ns:/run/netns/{self.namespace}"]
        call(
            "podman", "run", "--detach", "--name", self.name, *LIMITS, *network, "--systemd=always", "--privileged",
            "--volume", f"{self.share}:/share", "--rootfs", self.root, "/sbin/init",
        )
        pid = call("podman", "inspect", "--format", "{{.State.Pid}}", self.name).strip()
        # Ten times as fast as `podman exec`, and a test has some hundred commands.
        self.enter = ["nsenter", "--target", pid, "--all", "--wd=/", *ENVIRONMENT]
        eventually(
            f"systemd of {self.release} runs without a failed unit",
            lambda: self.attempt("systemctl", "is-system-running").stdout == "running\n",
        )

    def remove(self):
        subprocess.run(["podman", "rm", "--force", "--time", "0", self.name], capture_output=True)
        for namespace in (self.namespace, self.far):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def attempt(self, *command):
        return attempt(*self.enter, *command)

    def run(self, *command):
        done = self.attempt(*command)
        if done.returncode != 0:
            log = self.attempt("journalctl", "--no-pager", "--lines", "30", "--output", "short-precise").stdout
            fail(
                f"{self.release}: {' '.join(map(str, command))}: code {done.returncode}\n{done.stdout}{done.stderr}"
                f"journal of the box:\n{log}"
            )
        return done.stdout

    def path(self, path):
        """A file of the box, as the host sees it."""
        return self.root / path.lstrip("/")

    def write(self, path, text):
        file = self.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def show(self, unit, name):
        """A property of a unit."""
        return self.run("systemctl", "show", unit, "--value", "--property", name).strip()

    def journal(self, unit):
        return self.run("journalctl", "--no-pager", "--output", "cat", "--unit", unit)

    def pid(self, unit="holdfast"):
        """The process of a unit as the box numbers it, 0 without one."""
        return int(self.show(unit, "MainPID"))

    def is_active(self, unit="holdfast"):
        return self.show(unit, "ActiveState") == "active"

    def status(self, pid):
        """The lines of /proc/PID/status."""
        lines = self.run("cat", f"/proc/{pid}/status").splitlines()
        return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}

    def addresses(self, port):
        """The addresses of a port that are not link-local, with their prefix lengths."""
        found = json.loads(call("ip", "-n", self.namespace, "-j", "address", "show", "dev", port))
        every = found[0]["addr_info"]
        return [f"{each['local']}/{each['prefixlen']}" for each in every if each["scope"] == "global"]

    def link(self, port):
        found = attempt("ip", "-n", self.namespace, "-j", "link", "show", "dev", port)
        return json.loads(found.stdout)[0] if found.returncode == 0 else None

    def pings(self, interval, source=None, to="10.9.0.1"):
        return PingStream(self, interval, source, to)


class PingStream:
    """Pings from the far namespace to an address of the box, for as long as a `with` block lasts."""

    def __init__(self, box, interval, source, to):
        self.output = box.folder / f"pings-{box.release}"
        # The program is that of the root folder, so that the host does not need one.
        options = ["-n", "-i", interval, *(["-I", source] if source else []), to]
        self.command = ["ip", "netns", "exec", box.far, "chroot", box.root, "stdbuf", "-oL", "ping", *options]

    def __enter__(self):
        with self.output.open("w") as output:
            self.process = subprocess.Popen(list(map(str, self.command)), stdout=output, stderr=subprocess.STDOUT)
        eventually("a first ping is answered", self.answered)
        self.begin = time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.begin
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)

    def answered(self):
        """Numbers of the requests that were answered."""
        return {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl=", self.output.read_text())}

    def check_all_answered(self, meanwhile):
        sent = int(re.search(r"(\d+) packets transmitted", self.output.read_text())[1])
        answered = self.answered()
        # The last request may still have been on its way when the stream was ended.
        lost = sorted(set(range(1, sent)) - answered)
        check(not lost, f"{meanwhile}: {len(lost)} of {sent} pings were not answered: {lost[:20]}")
        told = f"{sent} pings in {self.seconds:.1f} s"
        check(sent > LEAST_PINGS * self.seconds, f"{meanwhile}: only {told}")
        return told
