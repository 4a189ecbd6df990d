"""The Debian package of the test build on boxes that systemd runs: installed, started, confined, upgraded and removed.

`service_manager.py BINARY CLIENTS`, as root. CLIENTS is the folder of `clients.sh`. Needs podman with runc and
mmdebstrap. Each release of Debian has a box in a container (`systemd_box.py`), with systemd as its first process.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import podman
from systemd_box import PATIENCE, Box, Failure, attempt, call, check, ended, eventually

WORKSPACE = pathlib.Path(__file__).resolve().parents[2]
# systemd 252, the oldest that the package is made for, and 257.
RELEASES = ["bookworm", "trixie"]
UNIT = "/usr/lib/systemd/system/holdfast.service"
DROP_INS = "/etc/systemd/system/holdfast.service.d"
# A drop-in of the tests, behind those of the package.
TEST_DROP_IN = f"{DROP_INS}/99-test.conf"
CONFIGURATION = "/etc/holdfast/holdfast.toml"
STATE = "/var/lib/holdfast"
# The address of the box, and that of the far end.
NEAR, FAR = "10.9.0.1", "10.9.0.254"
# An address that the box reaches by its default route alone.
REMOTE = "203.0.113.1"
# The address that a DHCP server has for the second port.
LEASED = "192.0.2.9/24"
# Bits of CapEff by the names of the unit (linux/capability.h).
CAPABILITIES = {"CAP_NET_ADMIN": 1 << 12, "CAP_NET_RAW": 1 << 13, "CAP_SYS_ADMIN": 1 << 21}
# Seconds between pings while the agent is replaced, and while a port is taken over. The program adds some milliseconds.
UPGRADE_PINGS, ADOPT_PINGS = 0.01, 0.001
# Status in /proc of a process with a filter of system calls (SECCOMP_MODE_FILTER).
FILTERED = "2"
# Seconds without a sign of life after which the tests have the watchdog act. The agent gives four signs in this time.
WATCHDOG = 4
# Exit status of a wrong command line.
WRONG_COMMAND_LINE = "2"
# The setting of a host that a container with a network of podman's own would change.
FORWARDING = pathlib.Path("/proc/sys/net/ipv4/ip_forward")

ETH0 = "/interfaces/interface[name=eth0]"
NEAR_ADDRESS = f"{ETH0}/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip={NEAR}]"
# A service whose work a handler does, the handler of `clients.sh`.
SERVICE = "sized-port"
OUTLINE = f"""[service]
name = "{SERVICE}"
version = "1.0.0"
missing-handler = "fail"
[grants]
write = ["/interfaces/interface"]
[handler]
user = "{SERVICE}"
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "handler"
[[tree]]
create = {{ type = "port", name = "params.port" }}
"""
MODULE = f"""module {SERVICE} {{ yang-version 1.1; namespace "urn:{SERVICE}"; prefix s;
  import holdfast-services {{ prefix svc; }} import holdfast {{ prefix hf; }}
  revision 2026-11-24 {{ description "First."; }}
  augment "/svc:services" {{ list {SERVICE} {{ key name; uses svc:service-instance;
    leaf name {{ type string; }} leaf port {{ type hf:interface-name; mandatory true; }}
    leaf bridge {{ type hf:interface-name; mandatory true; }} }} }} }}
"""


# What the operator does.


def gnmic(box, namespace, address, *arguments):
    """An attempt of gnmic, which trusts the box by the file that the guide names."""
    login = ["--tls-ca", box.path(f"{STATE}/tls/ca.pem"), "--username", "admin", "--password", password]
    target = ["--address", f"{address}:9339", "--encoding", "json_ietf"]
    return attempt("ip", "netns", "exec", namespace, clients / "gnmic", *target, *login, *arguments)


def set_leaves(box, leaves):
    """Sets leaves from the far end of the cable. The certificate has the address of the box some seconds after it."""
    arguments = ["set"]
    for path, value in leaves.items():
        arguments += ["--update-path", path, "--update-value", value]
    refusals = ["none"]

    def is_done():
        done = gnmic(box, box.far, NEAR, *arguments)
        refusals.append(done.stderr)
        return done.returncode == 0

    eventually(f"a Set of {list(leaves)}", is_done, lambda: refusals[-1])


def refused_set(box, path, value):
    done = gnmic(box, box.far, NEAR, "set", "--update-path", path, "--update-value", value)
    check(done.returncode != 0, f"a Set of {path} works without its drop-in")
    return done.stderr


def configure(box, section, **keys):
    """Writes keys into a section of the configuration file, behind its head."""
    lines = "".join(f'{key.replace("_", "-")} = {json.dumps(value)}\n' for key, value in keys.items())
    file = box.path(CONFIGURATION)
    text = file.read_text()
    check(f"[{section}]\n" in text, f"the configuration file has no section {section}")
    file.write_text(text.replace(f"[{section}]\n", f"[{section}]\n{lines}"))


@contextlib.contextmanager
def configuration(box, section, **keys):
    before = box.path(CONFIGURATION).read_text()
    configure(box, section, **keys)
    yield
    box.path(CONFIGURATION).write_text(before)


@contextlib.contextmanager
def drop_in(box, text, file=TEST_DROP_IN):
    box.write(file, f"[Service]\n{text}\n")
    box.run("systemctl", "daemon-reload")
    yield
    box.path(file).unlink()
    box.run("systemctl", "daemon-reload")


@contextlib.contextmanager
def unit_drop_in(box, name):
    """A drop-in of the package, switched on as the guide says."""
    box.run("holdfast", "unit", "enable", name)
    listed = box.run("holdfast", "unit", "list")
    check(re.search(rf"^{name} +on ", listed, re.M), f"{name} is not on:\n{listed}")
    box.run("systemctl", "restart", "holdfast")
    yield
    box.run("holdfast", "unit", "disable", name)


def make_user_and_start(box):
    """The two commands that the installation prints."""
    box.run("holdfast", "user", "set", "admin", "--role", "admin", "--password-file", "/share/password")
    box.run("systemctl", "enable", "--now", "holdfast")


def kill(box, name, pid):
    box.run("sh", "-c", f"kill -s {name} {pid}")


def restarted(box, before):
    """Waits for the agent to be ready in another process."""
    return eventually(
        f"{box.release}: another process than {before} is ready",
        lambda: box.is_active() and box.pid() != before and box.pid(),
    )


def version(box):
    return box.run("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}${Version}", "holdfast")


def check_kernel(box, what):
    check(f"{NEAR}/24" in box.addresses("eth0"), f"{what}: the address of eth0 is not in the kernel")


# The life of an agent.


def installation(box):
    told = box.run("dpkg", "--install", "/share/one.deb")
    check("systemctl enable --now holdfast" in told, f"the installation does not name the command to start:\n{told}")
    for unit in ("holdfast", "holdfast-wait-online"):
        enabled = box.attempt("systemctl", "is-enabled", unit).stdout.strip()
        check(enabled == "disabled", f"after the installation {unit} is {enabled}")
        state = box.show(unit, "ActiveState")
        check(state == "inactive", f"after the installation {unit} is {state}")


def first_start(box):
    make_user_and_start(box)
    check(box.show("holdfast", "Type") == "notify", "the unit is not of Type=notify")
    check(box.is_active(), f"after its start the agent is {box.show('holdfast', 'ActiveState')}")
    status = box.show("holdfast", "StatusText")
    check(status.startswith("in sync, ") and "listening on [::]:9339" in status, f"StatusText={status}")


def confinement(box):
    unit = box.path(UNIT).read_text()
    pid = box.pid()
    status = box.status(pid)
    names = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.M)
    want = sum(CAPABILITIES[name] for line in names for name in line.split())
    for kind in ("CapEff", "CapPrm", "CapBnd"):
        check(int(status[kind], 16) == want, f"{kind} is {status[kind]}, and the unit gives {want:x}")
    check(status["NoNewPrivs"] == "1", f"NoNewPrivs is {status['NoNewPrivs']}")
    check(status["Seccomp"] == FILTERED, f"Seccomp is {status['Seccomp']}")
    mounts = [line.split() for line in box.run("cat", f"/proc/{pid}/mountinfo").splitlines()]
    options = {mount[4]: mount[5].split(",") for mount in mounts}
    check("ro" in options["/"], "the agent may write to all files")
    check("rw" in options[STATE], "the agent may not write to its state folder")
    check(box.run("ls", "/home") != "", "the box has no account with a folder in /home")
    check(box.run("ls", f"/proc/{pid}/root/home") == "", "the agent sees /home")


def set_reaches_the_kernel(box):
    first = [f"{ETH0}/config/enabled", "true", f"{NEAR_ADDRESS}/config/prefix-length", "24"]
    arguments = ["set"]
    for path, value in zip(first[::2], first[1::2]):
        arguments += ["--update-path", path, "--update-value", value]
    done = gnmic(box, box.namespace, "127.0.0.1", *arguments)
    check(done.returncode == 0, f"the first Set fails: {done.stderr}")
    check_kernel(box, "after the first Set")
    set_leaves(box, {f"{ETH0}/config/mtu": "1414"})
    found = box.link("eth0")["mtu"]
    check(found == 1400, f"a Set from the far end gave eth0 the MTU {found}")


def kill_9(box):
    before, starts = box.pid(), int(box.show("holdfast", "NRestarts"))
    with box.pings(UPGRADE_PINGS) as stream:
        kill(box, "KILL", before)
        restarted(box, before)
    told = stream.check_all_answered("a killed agent")
    check(int(box.show("holdfast", "NRestarts")) == starts + 1, "the service manager did not start the agent anew")
    check_kernel(box, "after a kill")
    return told


def watchdog(box):
    with drop_in(box, f"WatchdogSec={WATCHDOG}s\nRestartSec=100ms"):
        box.run("systemctl", "restart", "holdfast")
        before = box.pid()
        kill(box, "STOP", before)
        restarted(box, before)
        check("Watchdog timeout" in box.journal("holdfast"), "the journal does not name the watchdog")
        check_kernel(box, "after the watchdog")
    box.run("systemctl", "restart", "holdfast")


def reload(box):
    before = box.pid()
    check('"level":"DEBUG"' not in box.journal("holdfast"), "the log has lines of the level debug already")
    with configuration(box, "agent", log_level="debug"):
        box.run("systemctl", "reload", "holdfast")
        # A connection is a line of that level.
        set_leaves(box, {f"{ETH0}/config/description": "uplink"})
        eventually("the log has the level of the file", lambda: '"level":"DEBUG"' in box.journal("holdfast"))
    box.run("systemctl", "reload", "holdfast")
    check(box.pid() == before, "a reload has ended the agent")


def wrong_option(box):
    with drop_in(box, "ExecStart=\nExecStart=/usr/bin/holdfast run --no-such-option\nRestartSec=100ms"):
        done = box.attempt("systemctl", "restart", "holdfast")
        check(done.returncode != 0, "the unit starts with a wrong option")
        eventually("a wrong option is tried again", lambda: int(box.show("holdfast", "NRestarts")) > 1)
        # While an attempt runs, it has no status yet.
        has_ended = lambda: box.show("holdfast", "ExecMainStatus") == WRONG_COMMAND_LINE
        eventually(f"the exit status of a wrong option is {WRONG_COMMAND_LINE}", has_ended)
        check_kernel(box, "without an agent")
    # The count of restarts begins anew, too: systemd 252 keeps it otherwise, and doctor warns of it.
    box.run("systemctl", "stop", "holdfast")
    box.attempt("systemctl", "reset-failed", "holdfast")
    box.run("systemctl", "start", "holdfast")


def system_drop_in(box):
    hostname, banner = "/system/config/hostname", "/system/config/motd-banner"
    refusal = refused_set(box, hostname, "router7")
    check("20-system.conf" in refusal, f"the refusal does not name the drop-in: {refusal}")
    with unit_drop_in(box, "system"):
        set_leaves(box, {hostname: "router7", banner: "hello from a test"})
        check(box.run("uname", "-n").strip() == "router7", "the host has another name")
        check(box.run("cat", "/etc/hostname").strip() == "router7", "/etc/hostname has another name")
        check("hello from a test" in box.run("cat", "/etc/motd"), "/etc/motd lacks the banner")
        found = int(box.status(box.pid())["CapEff"], 16)
        check(found & CAPABILITIES["CAP_SYS_ADMIN"] == 0, "the agent keeps the capability of its helper")
        for leaf in (hostname, banner):
            done = gnmic(box, box.far, NEAR, "set", "--delete", leaf)
            check(done.returncode == 0, f"cannot delete {leaf}: {done.stderr}")


def set_password(box, plaintext):
    """Gives the account `ann` a password by gNSI credentialz."""
    password_of_ann = {"account": "ann", "password": {"plaintext": plaintext}, "version": "1", "created_on": 1}
    requests = [{"password": {"accounts": [password_of_ann]}}, {"finalize": {}}]
    login = ["-cacert", box.path(f"{STATE}/tls/ca.pem"), "-H", "username: admin", "-H", f"password: {password}"]
    call_of = [f"{NEAR}:9339", "gnsi.credentialz.v1.Credentialz.RotateAccountCredentials"]
    data = "\n".join(map(json.dumps, requests))
    return attempt("ip", "netns", "exec", box.far, clients / "grpcurl", *login, "-d", data, *call_of)


def credentials_drop_in(box):
    refusal = set_password(box, "refused")
    check(refusal.returncode != 0, "a password is set without the drop-in")
    before = box.path("/etc/shadow").stat()
    with unit_drop_in(box, "credentials"):
        done = eventually("a password is set", lambda: (it := set_password(box, "moon")).returncode == 0 and it)
        check("password" in done.stdout, f"the rotation has another answer: {done.stdout}")
        line = re.search(r"^ann:(.*?):", box.path("/etc/shadow").read_text(), re.M)
        check(line[1].startswith("$"), f"the password of the account is {line[1]}")
        after = box.path("/etc/shadow").stat()
        same = (before.st_gid, before.st_mode) == (after.st_gid, after.st_mode)
        check(same, "/etc/shadow has another group or mode")


def netns_drop_in(box):
    box.run("ip", "netns", "add", "inner")
    box.run("ip", "-n", "inner", "link", "add", "in0", "type", "veth", "peer", "name", "in1")
    with configuration(box, "agent", netns="inner"):
        with unit_drop_in(box, "netns"):
            line = "interface in0 ipv4 address 10.7.0.1 prefix-length 24"
            box.run("holdfast", "config", "set", *line.split())
            found = box.run("ip", "-n", "inner", "address", "show", "dev", "in0")
            check("inet 10.7.0.1/24 " in found, f"the address is not in the namespace:\n{found}")
            # Before the agent works elsewhere, so that it leaves nothing behind.
            box.run("holdfast", "config", "delete", "interface in0")
    box.run("systemctl", "restart", "holdfast")
    box.run("ip", "netns", "delete", "inner")


def users_drop_in(box):
    as_ann = ["setpriv", "--reuid", "ann", "--regid", "ann", "--clear-groups", "holdfast"]
    check(box.attempt(*as_ann, "show", "interfaces").returncode != 0, "an account has a socket without the drop-in")
    with unit_drop_in(box, "users"):
        box.run("holdfast", "user", "set", "ann", "--role", "read-only", "--no-password")
        shown = box.run(*as_ann, "show", "interfaces")
        check("eth0" in shown, f"an account sees no port:\n{shown}")
        refused = box.attempt(*as_ann, "config", "set", "interface", "eth0", "mtu", "1300")
        check("read-only" in refused.stderr, f"an account that may only read: {refused.stdout}{refused.stderr}")


def handler_template(box):
    unit = f"holdfast-service@{SERVICE}"
    box.run("useradd", "--system", SERVICE)
    handler = box.path(f"/usr/lib/holdfast/handlers/{SERVICE}")
    handler.parent.mkdir()
    shutil.copy(clients / "handler", handler)
    shutil.copytree(WORKSPACE / "proto/protos/holdfast", box.path("/opt/protos/holdfast"))
    instance = f"holdfast_native:/services/{SERVICE}[name=acme]"
    protos = drop_in(box, "Environment=PROTO_PATH=/opt/protos", f"/etc/systemd/system/{unit}.service.d/protos.conf")
    folder = drop_in(box, "RuntimeDirectory=holdfast")
    with configuration(box, "services", socket="/run/holdfast/services.sock"), folder, protos:
        box.run("systemctl", "restart", "holdfast")
        box.run("holdfast", "service", "install", f"/share/{SERVICE}-1.0.0.hfs")
        box.run("systemctl", "start", unit)
        eventually("the handler is attached", lambda: "synced" in box.journal(unit))
        status = box.status(box.pid(unit))
        uid = box.run("id", "-u", SERVICE).strip()
        check(status["Uid"].split() == [uid] * 4, f"the handler runs as {status['Uid']}, its user is {uid}")
        check(int(status["CapEff"], 16) == 0, f"the handler has the capabilities {status['CapEff']}")
        check(status["Seccomp"] == FILTERED, f"Seccomp of the handler is {status['Seccomp']}")
        set_leaves(box, {instance: json.dumps({"bridge": "br0", "port": "eth1"})})
        check(box.link("eth1").get("master") == "br0", "the handler has not put the port into the bridge")
        done = gnmic(box, box.far, NEAR, "set", "--delete", instance)
        check(done.returncode == 0, f"the instance cannot be deleted: {done.stderr}")
        check(box.link("br0") is None, "the bridge of the handler stays")
        # A handler is started anew, and attaches again.
        before = box.pid(unit)
        kill(box, "KILL", before)
        eventually("the handler is attached again", lambda: box.journal(unit).count("synced") == 2)
        box.run("systemctl", "stop", unit)
        box.run("holdfast", "service", "remove", SERVICE)
    shutil.rmtree(handler.parent)
    box.run("systemctl", "restart", "holdfast")


def wait_online(box):
    unit = "holdfast-wait-online"
    box.run("systemctl", "enable", unit)
    box.run("systemctl", "stop", "holdfast", unit, "network.target", "network-online.target")
    box.write(
        "/etc/systemd/system/consumer.service",
        "[Unit]\nWants=network-online.target\nAfter=network-online.target\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n",
    )
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "consumer")
    order = ["holdfast", unit, "network-online.target", "consumer"]
    moments = [int(box.show(each, "ActiveEnterTimestampMonotonic")) for each in order]
    check(0 < moments[0] and moments == sorted(moments), f"{order} were active after {moments} microseconds")

    box.run("holdfast", "config", "set", "interface", "eth9", "enabled", "true")
    command = "/usr/bin/holdfast wait-online --timeout 1"
    file = f"/etc/systemd/system/{unit}.service.d/test.conf"
    with drop_in(box, f"ExecStart=\nExecStart={command}", file):
        check(box.attempt("systemctl", "restart", unit).returncode != 0, "a port that is not there is not waited for")
        check("eth9" in box.journal(unit), f"the journal does not name the port:\n{box.journal(unit)}")
    with drop_in(box, f"ExecStart=\nExecStart={command} --allow-pending", file):
        box.run("systemctl", "restart", unit)
    box.run("holdfast", "config", "delete", "interface eth9")
    box.run("systemctl", "disable", unit)


def findings(box):
    """The results of doctor by the names of its checks."""
    done = box.attempt("holdfast", "doctor", "--json")
    check(done.stdout, f"doctor says nothing: {done.stderr}")
    found = json.loads(done.stdout)
    failures = [each for each in found if each["result"] == "failure"]
    # Kinds of links that the kernel of the host lacks are warnings.
    check(done.returncode in (0, 1) and not failures, f"doctor ends with {done.returncode}: {failures}")
    return {each["id"]: each for each in found}


def doctor(box):
    found = findings(box)
    good = [
        "kernel-variables", "process-agent", "process-capabilities", "process-open-files", "process-unit",
        "files-folder", "files-configuration", "server-sockets", "server-certificate", "server-users",
        "others-networkd", "others-network-manager", "others-ifupdown", "others-dhcp", "state-objects", "state-window",
    ]
    for name in good:
        check(found[name]["result"] == "ok", f"doctor: {found[name]}")


def upgrade(box):
    before = box.pid()
    with box.pings(UPGRADE_PINGS) as stream:
        box.run("dpkg", "--install", "/share/two.deb")
        up = restarted(box, before)
        check(version(box) == "ii 2.0.0-1", f"after the upgrade: {version(box)}")
        box.run("dpkg", "--install", "/share/one.deb")
        down = restarted(box, up)
        check(version(box) == "ii 1.0.0-1", f"after the downgrade: {version(box)}")
    told = stream.check_all_answered("upgrade and downgrade")

    file = box.path(f"{STATE}/format")
    format_, written_by = file.read_text().split()
    file.write_text(f"{int(format_) + 1} 9.9.9\n")
    refused = box.attempt("dpkg", "--install", "/share/one.deb")
    check(refused.returncode != 0, "a version that cannot read the state is installed")
    check("version 9.9.9 of the agent has written" in refused.stderr, f"the refusal has no reason: {refused.stderr}")
    check(version(box) == "ii 1.0.0-1", f"after the refused downgrade: {version(box)}")
    check(box.is_active() and box.pid() == down, "the refused downgrade has ended the agent")
    file.write_text(f"{format_} {written_by}\n")
    return told


def removal(box):
    box.run("dpkg", "--remove", "holdfast")
    check(box.show("holdfast", "ActiveState") == "inactive", "a removal leaves the agent running")
    check(box.path(f"{STATE}/holdfast.redb").exists(), "a removal takes the state along")
    check_kernel(box, "after the removal")
    box.run("dpkg", "--install", "/share/one.deb")
    # The unit was enabled before the removal.
    enabled = box.attempt("systemctl", "is-enabled", "holdfast").stdout.strip()
    check(enabled == "enabled", f"after the second installation the unit is {enabled}")
    check(not box.is_active(), "the second installation starts the agent")
    with box.pings(UPGRADE_PINGS) as stream:
        box.run("systemctl", "start", "holdfast")
        shown = box.run("holdfast", "config", "show")
        check(f"address {NEAR}" in shown, f"the configuration is not continued:\n{shown}")
    told = stream.check_all_answered("a second installation")
    box.run("holdfast", "unit", "enable", "users")
    told_by_purge = box.run("dpkg", "--purge", "holdfast")
    check("stay in the kernel" in told_by_purge, f"a purge does not say that the network stays:\n{told_by_purge}")
    enabled = "/etc/systemd/system/multi-user.target.wants/holdfast.service"
    for path in (STATE, "/etc/holdfast", DROP_INS, UNIT, enabled):
        check(not os.path.lexists(box.path(path)), f"a purge leaves {path}")
    check_kernel(box, "after the purge")
    return told


def dhcp_drop_in(box):
    """A factory-new box asks for a lease, with an identity that no server of a bootstrap is asked with."""
    box.run("dpkg", "--install", "/share/one.deb")
    files = {"idevid-key": "/etc/holdfast/idevid.key", "idevid-cert": "/etc/holdfast/idevid.pem"}
    call(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=box/serialNumber=HF-1", "-keyout", box.path(files["idevid-key"]),
        "-out", box.path(files["idevid-cert"]),
    )
    keys = {key.replace("-", "_"): file for key, file in files.items()}
    call("ip", "-n", box.far, "address", "add", "192.0.2.1/24", "dev", "port1")
    command = [
        "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file=", "--port=0",
        "--no-ping", "--interface=port1", "--bind-interfaces", "--dhcp-authoritative",
        "--dhcp-range=192.0.2.9,192.0.2.9,255.255.255.0",
        f"--dhcp-leasefile={box.folder}/leases-{box.release}", "--log-facility=-",
    ]
    with open(box.folder / f"dnsmasq-{box.release}.log", "w") as log:
        server = subprocess.Popen(["ip", "netns", "exec", box.far, *command], stdout=log, stderr=log)
    try:
        with configuration(box, "bootz", port="eth1", serial="HF-1", vendor_ca=files["idevid-cert"], **keys):
            with unit_drop_in(box, "dhcp"):
                # The address of the agent that was purged has the mark of an agent, and this one does not know it.
                eventually("the first port has no address", lambda: box.addresses("eth0") == [])
                eventually("the second port has a lease", lambda: box.addresses("eth1") == [LEASED])
    finally:
        server.terminate()
        server.wait(PATIENCE)
    purge(box)


def purge(box):
    """Back to a box without the agent, with bare ports."""
    box.run("dpkg", "--purge", "holdfast")
    shutil.rmtree(box.path("/etc/holdfast"), ignore_errors=True)
    for port in box.PORTS:
        call("ip", "-n", box.namespace, "address", "flush", "dev", port)
        call("ip", "-n", box.namespace, "link", "set", port, "mtu", "1500")


# Boxes that other programs have set up.


def adopt(box, check_id, program, advice, routes):
    """Takes a port over from a program that has configured it, and keeps that program off as the answer advises.

    Returns a report of the stream of pings that went on meanwhile.
    """
    eventually(f"{program} has configured eth0", lambda: box.addresses("eth0") == [f"{NEAR}/24"])
    box.run("dpkg", "--install", "/share/one.deb")
    make_user_and_start(box)
    with box.pings(ADOPT_PINGS, REMOTE) as stream:
        told = box.run("holdfast", "adopt", "--port", "eth0", "--apply")
        box.run("holdfast", "adopt", "--confirm")
        found = findings(box)[check_id]
    report = stream.check_all_answered(f"adopt beside {program}")
    check(f"{program} manages eth0: {advice}" in told, f"adopt does not say how to keep {program} off:\n{told}")
    check(found["result"] == "warning" and advice in found["advice"], f"doctor beside {program}: {found}")
    default = box.run("ip", "route", "show", "default")
    check(all(word in default for word in routes), f"the default route after adopt: {default}")
    return report


def in_sync(box):
    """Waits until what is configured is in the kernel, and returns how often an object was lost before."""
    eventually("all is in the kernel", lambda: findings(box)["state-objects"]["result"] == "ok")
    check_kernel(box, "after the advice")
    return box.journal("holdfast").count('"losses"')


def check_kept_off(box, check_id, program, *commands):
    """The program does nothing to the port any more, whatever it is told."""
    before = in_sync(box)
    with box.pings(ADOPT_PINGS, REMOTE) as stream:
        for command in commands:
            box.attempt(*command.split())
        check(findings(box)[check_id]["result"] == "ok", f"doctor still sees {program}")
    stream.check_all_answered(f"{program}, kept off")
    check(in_sync(box) == before, f"{program} has taken something away, although it was kept off")


def networkd(box):
    file = "/etc/systemd/network/10-uplink.network"
    box.write(file, f"[Match]\nName=eth0\n[Network]\nAddress={NEAR}/24\nGateway={FAR}\nLinkLocalAddressing=no\n")
    box.run("systemctl", "start", "systemd-networkd")
    own = "/etc/systemd/network/00-eth0.network"
    advice = f"write {own} with `[Match] Name=eth0` and `[Link] Unmanaged=yes`, then `networkctl reload`"
    report = adopt(box, "others-networkd", "systemd-networkd", advice, ["proto holdfast", FAR])
    box.write(own, "[Match]\nName=eth0\n[Link]\nUnmanaged=yes\n")
    # This takes the address away once, and the agent puts it back; the pings begin after that.
    box.run("networkctl", "reload")
    off = ["networkctl reload", "networkctl reconfigure eth0", "systemctl restart systemd-networkd"]
    check_kept_off(box, "others-networkd", "systemd-networkd", *off)
    box.run("systemctl", "stop", "systemd-networkd.socket", "systemd-networkd")
    for each in (file, own):
        box.path(each).unlink()
    purge(box)
    return report


def network_manager(box):
    # No port but eth0, which has a connection of its own.
    box.write("/etc/NetworkManager/conf.d/test.conf", "[main]\nno-auto-default=*\n")
    connection = "/etc/NetworkManager/system-connections/uplink.nmconnection"
    box.write(
        connection,
        "[connection]\nid=uplink\ntype=ethernet\ninterface-name=eth0\n"
        f"[ipv4]\nmethod=manual\naddress1={NEAR}/24,{FAR}\n[ipv6]\nmethod=disabled\n",
    )
    # A file that others may read is ignored.
    box.path(connection).chmod(0o600)
    box.run("systemctl", "unmask", "NetworkManager")
    box.run("systemctl", "start", "NetworkManager")
    own = "/etc/NetworkManager/conf.d/eth0.conf"
    advice = f"write {own} with `[keyfile] unmanaged-devices+=interface-name:eth0`, then `nmcli general reload`"
    report = adopt(box, "others-network-manager", "NetworkManager", advice, ["proto holdfast", FAR])
    box.write(own, "[keyfile]\nunmanaged-devices+=interface-name:eth0\n")
    # This takes the address away once, and the agent puts it back; the pings begin after that.
    box.run("nmcli", "general", "reload")
    off = ["nmcli device disconnect eth0", "systemctl restart NetworkManager", "nmcli networking off"]
    check_kept_off(box, "others-network-manager", "NetworkManager", *off)
    box.run("systemctl", "stop", "NetworkManager")
    purge(box)
    return report


def ifupdown(box):
    file = "/etc/network/interfaces.d/eth0"
    box.write(file, f"auto eth0\niface eth0 inet static\n address {NEAR}/24\n gateway {FAR}\n")
    box.run("ifup", "eth0")
    advice = "take eth0 out of /etc/network/interfaces and interfaces.d"
    # The default route has the flag `onlink`, which is not modelled: the route stays that of ifupdown.
    report = adopt(box, "others-ifupdown", "ifupdown", advice, ["onlink", FAR])
    box.path(file).unlink()
    off = ["systemctl restart networking", "ifdown eth0"]
    check_kept_off(box, "others-ifupdown", "ifupdown", *off)
    purge(box)
    return report


LIFE = [
    installation, first_start, confinement, set_reaches_the_kernel, kill_9, watchdog, reload, wrong_option,
    doctor, system_drop_in, credentials_drop_in, netns_drop_in, users_drop_in, handler_template, wait_online, upgrade,
    removal, dhcp_drop_in,
]
MANAGERS = [networkd, network_manager, ifupdown]


def make_packages(share, work):
    """The package of the test build, the same as a later version, and the package of the service with a handler."""
    deb = WORKSPACE / "packaging/deb.sh"
    environment = {**os.environ, "CLIENTS": str(clients)}
    call(deb, binary, share / "one.deb", "--deb-version", "1.0.0-1", "--fast", env=environment)
    call("dpkg-deb", "--raw-extract", share / "one.deb", work / "later")
    control = work / "later/DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 2.0.0-1", control.read_text(), flags=re.M))
    call("dpkg-deb", "--root-owner-group", "-Znone", "--build", work / "later", share / "two.deb")
    source = work / SERVICE
    (source / "templates").mkdir(parents=True)
    (source / "service.toml").write_text(OUTLINE)
    (source / f"{SERVICE}@2026-11-24.yang").write_text(MODULE)
    call(binary, "service", "pack", source, "--output", share)


def play(box, packages):
    """The whole test on one box. Waits for the packages once the box is up."""
    began = time.monotonic()
    try:
        box.start()
        call("ip", "-n", box.far, "address", "add", f"{FAR}/24", "dev", "port0")
        call("ip", "-n", box.far, "address", "add", f"{REMOTE}/32", "dev", "lo")
        box.run("useradd", "--create-home", "ann")
        systemd = box.run("systemctl", "--version").split()[1]
        print(f"{box.release:9} systemd {systemd} {time.monotonic() - began:17.1f} s", flush=True)
        packages.result()
        for case in LIFE + MANAGERS:
            began = time.monotonic()
            report = case(box)
            line = f"{box.release:9} {case.__name__:24} {time.monotonic() - began:5.1f} s  {report or ''}"
            print(line.rstrip(), flush=True)
    except Failure as failure:
        raise Failure(f"{box.release}: {failure}") from None
    finally:
        box.remove()


def end_early(*_):
    raise Failure("ended by a signal")


def play_all(folder):
    """Plays each release on a box of its own, side by side: most of the time is waiting."""
    boxes = [Box(release, folder) for release in RELEASES]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        packages = pool.submit(make_packages, folder / "share", folder)
        plays = [pool.submit(play, box, packages) for box in boxes]
        try:
            for done in concurrent.futures.as_completed(plays):
                done.result()
        finally:
            # The boxes that still play end at their next command, and are removed by their threads.
            ended.set()


binary, clients = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
password = secrets.token_hex(8)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, end_early)
forwarding = FORWARDING.read_text()
with tempfile.TemporaryDirectory(prefix="holdfast-service-manager-") as name:
    folder = pathlib.Path(name)
    # Programs in the root folders run as users who have to find their way.
    folder.chmod(0o755)
    (folder / "share").mkdir()
    (folder / "share/password").write_text(f"{password}\n")
    podman.keep_in(folder)
    try:
        play_all(folder)
    except Failure as failure:
        sys.exit(f"service_manager: {failure}")
if FORWARDING.read_text() != forwarding:
    sys.exit("service_manager: the forwarding of the host has changed")
print("installed, run, confined, upgraded and removed by systemd")
