"""A whole machine with as many processors as one likes, by qemu's emulation, without KVM.

Debian's kernel runs programs of this machine's own C library, from a file system in memory. Times
inside mean nothing. Contents, counts and resident sizes do.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allod.console import Failure, run_logged
from workshop.locks import held
from workshop.packages import PackagesUnavailable, ensure_packages
from workshop.paths import LOGS, STATE, build_dir

PROGRAMS = build_dir("release") / "tests" / "cores"
KERNELS = STATE / "kernels"
KERNEL = "linux-image-cloud-amd64"
"""Names the package that has the kernel."""
PACKAGES = ("qemu-system-x86", "dpkg")
BOOT_SECONDS = 600.0
MEBIBYTES = 3072
# Who waits for a lock of the kernel ends its processor's turn on the only real one.
TURNS = ("-accel", "tcg,thread=single,tb-size=256")
_DEPENDS = re.compile(r"Depends: (linux-image-[0-9]\S*)")
_LIBRARY = re.compile(r"(/\S+)")
_ENDED = re.compile(r"^ended: (-?\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """A program of tests/cores with its arguments, and the variables in which it runs."""

    program: str
    variables: Mapping[str, str]

    def lines(self) -> list[str]:
        """What the machine's first program reads. Earlier variables of the same name are gone."""
        return [*(f"{k}={v}" for k, v in self.variables.items()), f"/{self.program}"]


def boot(
    processors: int,
    nodes: int,
    runs: Sequence[Run],
    libraries: Sequence[Path],
    directory: Path,
) -> list[str]:
    """Runs the programs one after the other, and returns what each of them printed.

    Each memory node has as many of the processors, and as much memory. The libraries are files of
    that name in the root. Fails where a program does.
    """
    kernel = ensure_kernel()
    files = dict(_programs())
    files |= {library.name: library.resolve() for library in libraries}
    commands = "".join(f"{line}\n" for run in runs for line in run.lines())
    image = directory / "initrd"
    image.write_bytes(_archive(files, {"commands": commands.encode()}))
    command = [
        *("qemu-system-x86_64", "-machine", "q35", "-cpu", "max", *TURNS),
        *("-m", str(MEBIBYTES), *_topology(processors, nodes), "-nic", "none"),
        *("-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"),
        *("-kernel", str(kernel), "-initrd", str(image), "-append"),
        "console=ttyS0 quiet panic=-1 mitigations=off nowatchdog nosoftlockup rdinit=/init "
        # On a busy machine, the kernel would find no timer.
        "no_timer_check "
        "rcupdate.rcu_cpu_stall_suppress=1 tsc=nowatchdog random.trust_cpu=on "
        # The kernel would move pages, and not tell of those that it is about to move.
        "numa_balancing=disable",
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=BOOT_SECONDS,
        check=False,
    )
    said = done.stdout.replace("\r", "")
    ends = list(_ENDED.finditer(said))
    if [end[1] for end in ends] != ["0"] * len(runs):
        raise AssertionError(f"{said}\n{done.stderr}")
    begins = [0, *(end.end() for end in ends)]
    return [said[b : e.start()] for b, e in zip(begins, ends, strict=False)]


def _topology(processors: int, nodes: int) -> list[str]:
    each = processors // nodes
    options = ["-smp", f"{processors},sockets={nodes},cores={each},threads=1"]
    for i in range(nodes):
        memory = f"memory-backend-ram,id=m{i},size={MEBIBYTES // nodes}M"
        node = f"node,nodeid={i},cpus={i * each}-{(i + 1) * each - 1},memdev=m{i}"
        options += ["-object", memory, "-numa", node]
    return options


@functools.cache
def ensure_kernel() -> Path:
    """The kernel's file, fetched once for this clone."""
    ensure_packages(PACKAGES)
    with held(KERNELS / ".lock", "a kernel for emulated machines"):
        found = sorted(KERNELS.glob("root/boot/vmlinuz-*"))
        return found[-1] if found else _fetch_kernel()


def _fetch_kernel() -> Path:
    named = subprocess.run(
        ["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=False
    )
    package = _DEPENDS.search(named.stdout)
    if package is None:
        raise PackagesUnavailable(f"no package archive names {KERNEL}")
    # Of the package, the kernel alone.
    script = (
        "rm -rf root *.deb && mkdir root && apt-get -q download $0 && "
        "dpkg-deb --fsys-tarfile *.deb | tar -x -C root ./boot && rm *.deb"
    )
    try:
        run_logged(
            f"fetching {package[1]}",
            ["sh", "-c", script, package[1]],
            LOGS / "apt-download.log",
            directory=KERNELS,
        )
    except Failure as failure:
        raise PackagesUnavailable(str(failure)) from failure
    return sorted(KERNELS.glob("root/boot/vmlinuz-*"))[-1]


def _programs() -> dict[str, Path]:
    """The programs, the first of which the kernel starts, with the libraries that they need."""
    files = {name: PROGRAMS / name for name in ("init", "rest", "nodes")}
    needed = subprocess.run(
        ["ldd", PROGRAMS / "rest"], capture_output=True, text=True, check=True
    )
    for name in _LIBRARY.findall(needed.stdout):
        files[name.lstrip("/")] = Path(name)
    return files


def _archive(files: Mapping[str, Path], texts: Mapping[str, bytes]) -> bytes:
    """A file system for the kernel, in the format newc of cpio."""
    folders = {
        parent
        for name in files
        for parent in map(str, Path(name).parents)
        if parent != "."
    }
    parts = [_member(name, 0o040755, b"") for name in sorted(folders | {"dev"})]
    parts += [_member(name, 0o100755, p.read_bytes()) for name, p in files.items()]
    parts += [_member(name, 0o100644, text) for name, text in texts.items()]
    # What the first program writes to: character device 5, 1.
    parts.append(_member("dev/console", 0o020600, b"", device=(5, 1)))
    return b"".join([*parts, _member("TRAILER!!!", 0, b"")])


def _member(
    name: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)
) -> bytes:
    path = os.fsencode(name) + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
