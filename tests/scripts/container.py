"""Makes the container image of a built agent, and plays the topology of two boxes with it, as containerlab does.

`container.py BINARY GNMIC`, as root. Needs podman with runc. Each container has a network namespace of its own: podman
makes no network, so nothing of the host is touched.
"""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time

import podman
import yaml

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
TOPOLOGY = PACKAGING / "container/two-boxes/two-boxes.clab.yml"
IMAGE = "localhost/holdfast:test"
# The options of the guide for a container that holds only the rights it needs (operating/container.md).
CONFINED = [
    "--read-only", "--tmpfs", "/run", "--cap-drop", "ALL", "--cap-add", "NET_ADMIN", "--cap-add", "NET_RAW",
    "--security-opt", "unmask=/proc/sys",
]
# containerlab starts the nodes of the kind `linux` like this.
PRIVILEGED = ["--privileged"]
# root of a container that runs in a container itself may not raise these limits.
LIMITS = ["--ulimit", "nofile=4096:20000", "--ulimit", "nproc=4096:4096"]
# Seconds until both boxes are up: a start of a debug build takes one, on a busy machine some more.
PATIENCE = 60


def call(*command, **options):
    """Output of a command; its error ends the test."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def eventually(what, is_so):
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            sys.exit(f"not within {PATIENCE} s: {what}")
        time.sleep(0.2)


class Box:
    """A node of the topology in a container."""

    def __init__(self, name, node, options, folder):
        self.name = f"{name}-{os.getpid()}"
        self.namespace = f"holdfast-{self.name}"
        defaults = topology["topology"]["defaults"]
        call("ip", "netns", "add", self.namespace)
        call("ip", "-n", self.namespace, "link", "set", "lo", "up")
        arguments = []
        for key, value in defaults["env"].items():
            arguments += ["--env", f"{key}={value}"]
        for bind in node["binds"]:
            source, rest = bind.split(":", 1)
            source = folder / source if source == "admin-password" else TOPOLOGY.parent / source
            arguments += ["--volume", f"{source}:{rest}"]
        network = ["--network", f"ns:/run/netns/{self.namespace}"]
        call("podman", "run", "--detach", "--name", self.name, *network, *LIMITS, *options, *arguments, IMAGE)

    def holdfast(self, *arguments):
        return subprocess.run(
            ["podman", "exec", self.name, "/usr/bin/holdfast", *arguments], capture_output=True, text=True
        )

    def is_healthy(self):
        return subprocess.run(["podman", "healthcheck", "run", self.name], capture_output=True).returncode == 0

    def reaches(self, address):
        return self.holdfast("ping", "-c", "1", "-W", "1", address).returncode == 0

    def gnmic(self, *arguments):
        login = ["--address", "127.0.0.1:9339", "--skip-verify", "--username", "admin", "--password", password]
        return call("ip", "netns", "exec", self.namespace, gnmic, *login, *arguments)

    def remove(self):
        subprocess.run(["podman", "rm", "--force", "--volumes", "--time", "5", self.name], capture_output=True)
        subprocess.run(["ip", "netns", "delete", self.namespace], capture_output=True)


def play(folder):
    for name, node in topology["topology"]["nodes"].items():
        options = CONFINED if name == "left" else PRIVILEGED
        boxes[name] = Box(name, node, options, folder)
    for box in boxes.values():
        eventually(f"{box.name} is healthy", box.is_healthy)
    for link in topology["topology"]["links"]:
        ends = [end.split(":") for end in link["endpoints"]]
        names = [f"h{os.getpid()}{side}" for side in "ab"]
        call("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for (node, port), name in zip(ends, names):
            call("ip", "link", "set", name, "netns", boxes[node].namespace, "name", port)
    left, right = boxes["left"], boxes["right"]
    eventually("the left box reaches the right one", lambda: left.reaches("10.0.0.2"))
    eventually("the right box reaches the left one", lambda: right.reaches("10.0.0.1"))
    for box in boxes.values():
        pending = box.holdfast("show", "pending").stdout
        if pending:
            sys.exit(f"{box.name}: {pending}\n{call('podman', 'logs', box.name)}")

    # What a client sets outlives the container.
    path = "/interfaces/interface[name=eth1]/config/description"
    left.gnmic("set", "--update-path", path, "--update-value", "set by a client")
    call("podman", "restart", "--time", "5", left.name)
    eventually("the left box is healthy again", left.is_healthy)
    eventually("the left box reaches the right one again", lambda: left.reaches("10.0.0.2"))
    answer = json.loads(left.gnmic("--encoding", "json_ietf", "get", "--path", path))
    found = list(answer[0]["updates"][0]["values"].values())
    if found != ["set by a client"]:
        sys.exit(f"after a restart the description is {found}")


binary, gnmic = (os.path.abspath(argument) for argument in sys.argv[1:])
topology = yaml.safe_load(TOPOLOGY.read_text())
password = secrets.token_hex(8)
boxes = {}
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    podman.keep_in(folder)
    (folder / "admin-password").write_text(password + "\n")
    try:
        call(PACKAGING / "container/build.sh", binary, IMAGE)
        play(folder)
    finally:
        for box in boxes.values():
            box.remove()
        subprocess.run(["podman", "rmi", "--force", "--all"], capture_output=True)
print("two boxes in containers reach one another, and keep what a client set")
