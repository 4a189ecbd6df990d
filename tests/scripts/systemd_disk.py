"""The disk of a box of the lab that systemd runs, with the Debian package of the test build installed.

`systemd_disk.py BINARY PASSWORD_FILE DISK`, as root. DISK is the file that it makes: an ext4 file system with the root
folder of `systemd_box.py`, in which an operator has installed the package, made the user `admin`, and enabled the unit.
"""

import concurrent.futures
import pathlib
import shutil
import sys
import tempfile

from systemd_box import Failure, call, unpack_root

WORKSPACE = pathlib.Path(__file__).resolve().parents[2]
LAB = WORKSPACE / "tests/lab"
# systemd 252, the oldest that the package is made for.
RELEASE = "bookworm"
# Size of the file system: three times what is in it. The file is sparse.
SIZE = "1200M"
# Units that take seconds of one slow processor and do nothing for these tests: a guest has no hardware to look for, the
# console is that of the scripts, and the timers tidy up once a day.
MASKED = [
    "systemd-udev-trigger.service", "modprobe@.service", "getty.target", "networking.service", "e2scrub_reap.service",
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
]
# The files of the host are there, read only: programs of the build, and the modules of the kernel.
MOUNTS = "/dev/ubda / ext4 defaults 0 0\nnone /host hostfs ro,/ 0 0\n"


def prepare(root):
    """What makes a box of the lab of a root folder: its mounts, and the units in `tests/lab/systemd`."""
    (root / "etc/fstab").write_text(MOUNTS)
    (root / "host").mkdir()
    (root / "usr/lib/modules").symlink_to("/host/usr/lib/uml/modules")
    (root / "usr/lib/lab").mkdir()
    for script in (LAB / "scripts", LAB / "systemd/start"):
        shutil.copy(script, root / "usr/lib/lab")
    units = sorted((LAB / "systemd").glob("*.service"))
    for unit in units:
        shutil.copy(unit, root / "etc/systemd/system")
    call("systemctl", "--root", root, "mask", *MASKED)
    call("systemctl", "--root", root, "enable", *(unit.name for unit in units))


def install(root, package, password):
    """What an operator does, as the guide says, to a root folder that has not booted yet."""
    shutil.copy(package, root / "holdfast.deb")
    shutil.copy(password, root / "password")
    call("chroot", root, "dpkg", "--install", "/holdfast.deb")
    call("chroot", root, "holdfast", "user", "set", "admin", "--role", "admin", "--password-file", "/password")
    call("chroot", root, "systemctl", "enable", "holdfast")
    for name in ("holdfast.deb", "password"):
        (root / name).unlink()


def make(binary, password, disk):
    with tempfile.TemporaryDirectory(prefix="holdfast-systemd-disk-") as name:
        folder = pathlib.Path(name)
        root, package = folder / "root", folder / "holdfast.deb"
        # gzip of the system takes half the time of the compression of published packages.
        deb = [WORKSPACE / "packaging/deb.sh", binary, package, "--fast", "--compress-system", "--compress-type", "gz"]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            packed = pool.submit(call, *deb)
            unpack_root(RELEASE, root)
            prepare(root)
            packed.result()
        install(root, package, password)
        call("mke2fs", "-q", "-t", "ext4", "-d", root, disk, SIZE)


if __name__ == "__main__":
    try:
        make(*(pathlib.Path(argument).resolve() for argument in sys.argv[1:]))
    except Failure as failure:
        sys.exit(f"systemd_disk: {failure}")
