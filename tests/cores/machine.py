"""A whole machine with as many processors as one likes, by qemu's emulation, without KVM.

Debian's kernel runs programs from a file system in memory, with this machine's own C library, or
the one that its cross compiler has. Times inside mean nothing. Contents, counts and resident sizes
do.
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

KERNELS = STATE / "kernels"
BOOT_SECONDS = 600.0
# Who waits for a lock of the kernel ends its processor's turn on the only real one.
TURNS = ("-accel", "tcg,thread=single,tb-size=256")
_DEPENDS = re.compile(r"Depends: (linux-image-[0-9]\S*)")
_LIBRARY = re.compile(r"(/\S+)")
_ENDED = re.compile(r"^ended: (-?\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Kind:
    """A kind of machine: Debian's name for it, how it is emulated, and where its programs are."""

    name: str
    package: str
    """That of the emulator."""
    command: tuple[str, ...]
    mebibytes: int
    console: str
    programs: Path
    """The built tests."""
    system: tuple[Path, ...] = ()
    """The loader and the C library, if they are not this machine's."""

    def apt(self) -> list[str]:
        """Options for its packages, of which this machine's package manager knows nothing."""
        if not self.system:
            return []
        state = KERNELS / self.name / "apt"
        for folder in ("lists/partial", "cache/archives/partial"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        options = {
            "APT::Architecture": self.name,
            "APT::Architectures::": self.name,
            "APT::Sandbox::User": "root",
            "Dir::State": state,
            "Dir::State::Lists": state / "lists",
            "Dir::State::status": state / "status",
            "Dir::Cache": state / "cache",
        }
        return [
            word
            for pair in options.items()
            for word in ("-o", "=".join(map(str, pair)))
        ]


X86_64 = Kind(
    name="amd64",
    package="qemu-system-x86",
    command=("qemu-system-x86_64", "-machine", "q35", "-cpu", "max"),
    mebibytes=3072,
    console="ttyS0",
    programs=build_dir("release") / "tests",
)
ARM64 = Kind(
    name="arm64",
    package="qemu-system-arm",
    command=(
        *("qemu-system-aarch64", "-machine", "virt,gic-version=3"),
        *("-cpu", "max,pauth-impdef=on"),
    ),
    mebibytes=1024,
    console="ttyAMA0",
    programs=build_dir("arm64") / "tests",
    system=tuple(
        Path("/usr/aarch64-linux-gnu/lib") / name
        for name in ("ld-linux-aarch64.so.1", "libc.so.6")
    ),
)


@dataclass(frozen=True)
class Run:
    """A program of the tests with its arguments, and the variables in which it runs."""

    program: str
    variables: Mapping[str, str]

    def lines(self) -> list[str]:
        """What the machine's first program reads. Earlier variables of the same name are gone."""
        return [*(f"{k}={v}" for k, v in self.variables.items()), f"/{self.program}"]

    def file(self, kind: Kind) -> Path:
        """The program."""
        return kind.programs / self.program.split()[0]


def boot(
    kind: Kind,
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
    kernel = ensure_kernel(kind)
    files = {"init": kind.programs / "cores" / "init"}
    for run in runs:
        files |= _with_libraries(kind, run)
    files |= {library.name: library.resolve() for library in libraries}
    commands = "".join(f"{line}\n" for run in runs for line in run.lines())
    image = directory / "initrd"
    image.write_bytes(_archive(files, {"commands": commands.encode()}))
    command = [
        *(*kind.command, *TURNS, "-m", str(kind.mebibytes)),
        *(*_topology(kind, processors, nodes), "-nic", "none"),
        *("-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"),
        *("-kernel", str(kernel), "-initrd", str(image), "-append"),
        f"console={kind.console} quiet panic=-1 mitigations=off nowatchdog nosoftlockup "
        # On a busy machine, the kernel would find no timer.
        "rdinit=/init no_timer_check "
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


def _topology(kind: Kind, processors: int, nodes: int) -> list[str]:
    if nodes == 1:
        return ["-smp", str(processors)]
    each = processors // nodes
    options = ["-smp", f"{processors},sockets={nodes},cores={each},threads=1"]
    for i in range(nodes):
        memory = f"memory-backend-ram,id=m{i},size={kind.mebibytes // nodes}M"
        node = f"node,nodeid={i},cpus={i * each}-{(i + 1) * each - 1},memdev=m{i}"
        options += ["-object", memory, "-numa", node]
    return options


@functools.cache
def ensure_kernel(kind: Kind) -> Path:
    """The kernel's file, fetched once for this clone."""
    ensure_packages([kind.package, "dpkg"])
    with held(KERNELS / ".lock", "a kernel for emulated machines"):
        found = _kernels(kind)
        return found[-1] if found else _fetch_kernel(kind)


def _kernels(kind: Kind) -> list[Path]:
    return sorted((KERNELS / kind.name).glob("root/boot/vmlinuz-*"))


def _fetch_kernel(kind: Kind) -> Path:
    # Names the package that has the kernel.
    name = f"linux-image-cloud-{kind.name}"
    options = kind.apt()
    log = LOGS / "apt-download.log"
    try:
        if options:
            run_logged(
                f"reading what there is for {kind.name}",
                ["apt-get", "-q", *options, "update"],
                log,
            )
        named = subprocess.run(
            ["apt-cache", *options, "depends", name],
            capture_output=True,
            text=True,
            check=False,
        )
        package = _DEPENDS.search(named.stdout)
        if package is None:
            raise PackagesUnavailable(f"no package archive names {name}")
        # Of the package, the kernel alone.
        script = (
            'rm -rf root *.deb && mkdir root && apt-get -q "$@" && '
            "dpkg-deb --fsys-tarfile *.deb | tar -x -C root ./boot && rm *.deb"
        )
        directory = KERNELS / kind.name
        directory.mkdir(parents=True, exist_ok=True)
        run_logged(
            f"fetching {package[1]}",
            ["sh", "-c", script, "sh", *options, "download", package[1]],
            log,
            directory=directory,
        )
    except Failure as failure:
        raise PackagesUnavailable(str(failure)) from failure
    return _kernels(kind)[-1]


def _with_libraries(kind: Kind, run: Run) -> dict[str, Path]:
    """The program with the libraries that it needs, by their names in the root."""
    program = run.file(kind)
    files = {run.program.split()[0]: program}
    if kind.system:
        return files | {f"lib/{path.name}": path for path in kind.system}
    needed = subprocess.run(
        ["ldd", program], capture_output=True, text=True, check=True
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
