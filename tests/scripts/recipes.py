#!/usr/bin/env python3
"""Runs the recipes of the guide: `recipes.py HOLDFAST GNMIC`, in a network namespace of its own.

After the recipes, the metrics of the agent are held against the dashboard and the alerts in `packaging/monitors`.

Each block of the language `sh` on the page is run by a shell, in order, on one box with the ports eth0 to eth3. It has to
succeed. A block of the language `text` that follows is what it prints, where `...` stands for anything.

A kernel without VLANs or bonds is asked for the plan of these recipes alone. The lab has a kernel with both.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "packaging/guide/recipes.md"
SECRET = "a long enough secret"

# Seconds that an agent takes to answer, on a machine that does other things as well.
START_LIMIT = 30
# Seconds between two questions to an agent that starts.
START_PAUSE = 0.1
# Seconds of the slowest recipe: a bundle for support takes a minute at most.
RECIPE_LIMIT = 90
# Least number of blocks, so that a page whose blocks are not found does not pass.
BLOCKS_LEAST = 20


def recipes(page):
    """The blocks to run, each with the heading above it and the text that it prints, if the page has it."""
    pattern = re.compile(
        r"^### (?P<heading>[^\n]*)$|^```sh\n(?P<commands>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?", re.M | re.S
    )
    heading = ""
    for found in pattern.finditer(page):
        if found["heading"]:
            heading = found["heading"]
        else:
            yield heading, found["commands"], found["printed"]


def fits(printed, expected):
    """Whether a text is that of the page."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.S) is not None


def program(folder, name, line):
    """Puts a program where the shell finds it first."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def has_kind(kind):
    """Whether the kernel has a kind of link."""
    parent = ["link", "eth0"] if kind == "vlan" else []
    made = ["ip", "link", "add", *parent, "name", "trial", "type", kind, *(["id", "1"] if parent else [])]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        return False
    subprocess.run(["ip", "link", "delete", "trial"], check=True)
    return True


def make_box(folder, holdfast, gnmic):
    """Makes ports, programs and an agent. Returns the process of the agent, and the environment of a shell on the box."""
    for command in ["mount -t tmpfs tmpfs /run", "ip link set lo up"]:
        subprocess.run(command.split(), check=True)
    for number in range(4):
        for command in [
            f"ip link add eth{number} type veth peer name peer{number}",
            f"ip link set eth{number} up",
            f"ip link set peer{number} up",
        ]:
            subprocess.run(command.split(), check=True)
    # Somebody has set this port up before Holdfast came.
    subprocess.run("ip address add 198.51.100.7/24 dev eth2".split(), check=True)
    state = folder / "state"
    (folder / "root").mkdir()
    # A warning of the doctor is about the machine of the test, and ends with 1; a failure ends with 2.
    program(
        folder,
        "holdfast",
        f'{holdfast} "$@" || {{ code=$?; [ "$1" = doctor ] && [ $code = 1 ] || exit $code; }}',
    )
    program(
        folder,
        "gnmic",
        f"exec {gnmic} -a 127.0.0.1:9339 --tls-ca {state}/tls/ca.pem -u admin -p '{SECRET}' -e json_ietf \"$@\"",
    )
    environment = dict(os.environ, HOLDFAST_STATE_DIR=str(state), PATH=f"{folder}/bin:{os.environ['PATH']}")
    run = [holdfast, "run", "--root", str(folder / "root"), "--introspect", "127.0.0.1:9190", "--log-level", "error"]
    agent = subprocess.Popen(run, env=environment)
    until = time.monotonic() + START_LIMIT
    while subprocess.run([holdfast, "show", "system"], env=environment, capture_output=True, check=False).returncode:
        if time.monotonic() > until or agent.poll() is not None:
            agent.kill()
            sys.exit("recipes: the agent does not answer")
        time.sleep(START_PAUSE)
    add = [holdfast, "user", "set", "admin", "--role", "admin"]
    subprocess.run(add, input=SECRET, text=True, env=environment, check=True)
    return agent, environment


def failures(folder, environment):
    """Runs all recipes, and tells of those that fail."""
    lacking = [kind for kind in ("vlan", "bond") if not has_kind(kind)]
    found = list(recipes(PAGE.read_text(encoding="utf-8")))
    if len(found) < BLOCKS_LEAST:
        yield f"{PAGE.name} has {len(found)} blocks"
    for heading, commands, expected in found:
        if any(re.search(rf"^ *(type )?{kind}\b", commands, re.M) for kind in lacking):
            commands = commands.replace("config set -", "config set --dry-run -")
        done = subprocess.run(
            ["sh", "-euc", commands],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RECIPE_LIMIT,
            check=False,
        )
        print(f"== {heading}\n{commands}{done.stdout}{done.stderr}", flush=True)
        if done.returncode:
            yield f"`{heading}` ends with {done.returncode}: {done.stderr.strip()}"
        elif expected and not fits(done.stdout, expected):
            yield f"`{heading}` prints\n{done.stdout}"


def serves_what_monitors_ask(folder, environment):
    """Has happen what some metrics count, and checks the dashboard and the alerts."""
    # An address that others take away, a Set that is refused, and a login with a wrong password.
    happen = """
        ip address delete 192.0.2.1/24 dev eth0
        ! gnmic set --update '/interfaces/interface[name=eth0]/config/mtu:::json_ietf:::"many"'
        ! gnmic -p wrong capabilities
        tries=0
        until curl --silent http://127.0.0.1:9190/metrics > metrics && grep -q '^holdfast_repairs_total' metrics; do
            tries=$((tries + 1))
            [ $tries -lt 100 ] || { echo 'the address does not come back' >&2; exit 1; }
            sleep 0.1
        done
        python3 "$CHECK" metrics
    """
    environment = dict(environment, CHECK=str(PAGE.parents[1] / "monitors/check.py"))
    done = subprocess.run(
        ["sh", "-euc", happen], cwd=folder, env=environment, capture_output=True, text=True, timeout=RECIPE_LIMIT, check=False
    )
    print(f"== monitors\n{done.stdout}", flush=True)
    if done.returncode:
        yield f"{done.stdout}{done.stderr}"


def main():
    if sys.argv[1] != "--inside":
        # Namespaces for network, host name and mounts, which end with the last process in them.
        inside = [sys.executable, __file__, "--inside", *(str(Path(path).resolve()) for path in sys.argv[1:3])]
        os.execvp("unshare", ["unshare", "--net", "--uts", "--mount", *inside])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        agent, environment = make_box(folder, *sys.argv[2:4])
        try:
            complaints = list(failures(folder, environment))
            complaints += serves_what_monitors_ask(folder, environment)
        finally:
            agent.terminate()
            agent.wait()
    print("\n".join(complaints) if complaints else "recipes: all succeed")
    sys.exit(bool(complaints))


main()
