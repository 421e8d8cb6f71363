"""The processors that came later, and how programs for them run on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from surface.black_box import run_program
from workshop.build import PORTS
from workshop.paths import build_dir


@dataclass(frozen=True)
class Machine:
    """A processor that Allod is built for, and what runs its programs."""

    name: str
    # Where Debian's cross libraries are, the loader among them.
    triple: str
    # The emulator; None: the processor of this machine.
    emulator: str | None
    page_size: int = 4096

    def __str__(self) -> str:
        return self.name

    @property
    def build(self) -> Path:
        """The folder of its build."""
        return build_dir(self.name)

    @property
    def library(self) -> Path:
        """The library that replaces malloc."""
        return self.build / "liballod.so"

    def command(
        self,
        program: Path,
        *arguments: str,
        preloaded: Path | None = None,
        with_own_pages: bool = True,
    ) -> list[str | Path]:
        """The command that runs a program."""
        if self.emulator is None:
            return [program, *arguments]
        command: list[str | Path] = [self.emulator, "-L", f"/usr/{self.triple}"]
        if self.page_size != 4096 and with_own_pages:
            command += ["-p", str(self.page_size)]
        # The emulator itself is not to be preloaded; it hands all other variables on.
        if preloaded is not None:
            command += ["-E", f"LD_PRELOAD={preloaded}"]
        return [*command, program, *arguments]

    def run(
        self,
        program: Path,
        *arguments: str,
        directory: Path,
        preloaded: Path | None = None,
        variables: Mapping[str, str] | None = None,
        with_own_pages: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end, with the machine's pages or the emulator's.

        qemu 7.2 ends programs for POWER that need libstdc++ and nothing else, if pages are large.
        """
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith("ALLOD_")
        }
        environment |= dict(variables or {})
        if preloaded is not None:
            environment["TEST_LIBRARY"] = str(preloaded)
            if self.emulator is None:
                environment["LD_PRELOAD"] = str(preloaded)
        command = self.command(
            program,
            *arguments,
            preloaded=preloaded,
            with_own_pages=with_own_pages,
        )
        return run_program(command, environment, directory)


MACHINES = (
    Machine("i386", "i686-linux-gnu", None),
    Machine("armhf", "arm-linux-gnueabihf", "qemu-arm-static"),
    Machine("s390x", "s390x-linux-gnu", "qemu-s390x-static"),
    Machine("riscv64", "riscv64-linux-gnu", "qemu-riscv64-static"),
    # Its kernels usually have pages of 64 KiB.
    Machine("ppc64le", "powerpc64le-linux-gnu", "qemu-ppc64le-static", 65536),
)
assert tuple(machine.name for machine in MACHINES) == PORTS
PACKAGES = ("googletest", "qemu-user-static")
