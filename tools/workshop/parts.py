"""Others' code that is built into what is handed out: versions and licences."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workshop import live_parts
from workshop.paths import ROOT, build_dir
from workshop.systems import System

# The name of the file that holds all licences.
FILE = "THIRD-PARTY-LICENCES"
UNKNOWN = "NOASSERTION"
PAGE = "live/page/package-lock.json"


@dataclass(frozen=True)
class Part:
    """Code of others, and the files that have it in them."""

    name: str
    # As SPDX writes it.
    licence: str
    within: str
    home: str
    version: Callable[[System], str]
    # The text that has to go with it, if any.
    text: Callable[[System], str]


def licences(system: System) -> str:
    """The file that goes with them."""
    pieces = [
        "What is built into Allod's libraries and programs besides Allod itself.\n"
    ]
    for part in PARTS:
        head = f"{part.name} {part.version(system)}, in {part.within}\n{part.licence}, {part.home}"
        pieces.append(f"{'=' * 80}\n{head}\n\n{part.text(system).strip()}\n")
    return "\n".join(pieces)


def _debian_version(package: str) -> Callable[[System], str]:
    def version(_system: System) -> str:
        try:
            done = subprocess.run(
                ["dpkg-query", "-W", "-f", "${Version}", package],
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            return UNKNOWN
        return done.stdout if done.returncode == 0 else UNKNOWN

    return version


def _live_version(package: str, source: str) -> Callable[[System], str]:
    """Of a part of the live server: Debian's package for this machine, its source for others."""

    def version(system: System) -> str:
        if system.runs_here:
            return _debian_version(package)(system)
        return live_parts.version(source)

    return version


def _live_text(package: str, source: str) -> Callable[[System], str]:
    def text(system: System) -> str:
        if system.runs_here:
            return _debian_text(package)(system)
        return live_parts.about(source, "copyright")

    return text


def _compiler_version(system: System) -> str:
    return _of_compiler(system, "-dumpfullversion")


def _of_compiler(system: System, question: str) -> str:
    command = [f"{system.tools}gcc", question]
    return subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


def _libc_version(system: System) -> str:
    package = "libc6-dev-arm64-cross" if system.tools else "libc6-dev"
    return _debian_version(package)(system)


def _page_version(name: str) -> Callable[[System], str]:
    def version(_system: System) -> str:
        lock = json.loads((ROOT / PAGE).read_text())
        found: str = lock["packages"][f"node_modules/{name}"]["version"]
        return found

    return version


def _page_text(name: str) -> Callable[[System], str]:
    def text(_system: System) -> str:
        folder = build_dir("release") / "live" / "node_modules" / name
        return (folder / "LICENSE").read_text()

    return text


def _debian_text(package: str) -> Callable[[System], str]:
    def text(_system: System) -> str:
        file = Path("/usr/share/doc") / package / "copyright"
        return file.read_text() if file.exists() else ""

    return text


def _header_text(system: System) -> str:
    """The comment that begins the header of libbacktrace, which comes with gcc."""
    header = Path(_of_compiler(system, "-print-file-name=include")) / "backtrace.h"
    if not header.exists():
        return ""
    comment = re.match(r"/\*(.*?)\*/", header.read_text(errors="replace"), re.DOTALL)
    return "" if comment is None else comment[1]


def _said(text: str) -> Callable[[System], str]:
    return lambda _system: text


PARTS = (
    Part(
        "libevent",
        "BSD-3-Clause",
        "liballod-live.so",
        "https://libevent.org/",
        _live_version("libevent-dev", "libevent"),
        _live_text("libevent-dev", "libevent"),
    ),
    Part(
        "zlib",
        "Zlib",
        "liballod-live.so",
        "https://zlib.net/",
        _live_version("zlib1g-dev", "zlib"),
        _live_text("zlib1g-dev", "zlib"),
    ),
    Part(
        "uPlot",
        "MIT",
        "the page of liballod-live.so",
        "https://github.com/leeoniya/uPlot",
        _page_version("uplot"),
        _page_text("uplot"),
    ),
    Part(
        "libbacktrace",
        "BSD-3-Clause",
        "liballod-live.so and allod-symbolizer",
        "https://gcc.gnu.org/",
        _compiler_version,
        _header_text,
    ),
    Part(
        "libgcc, libstdc++",
        "GPL-3.0-or-later WITH GCC-exception-3.1",
        "all libraries and programs",
        "https://gcc.gnu.org/",
        _compiler_version,
        _said("The exception lets programs that gcc has compiled have them in them."),
    ),
    Part(
        "GNU C Library",
        "LGPL-2.1-or-later",
        "the static programs trace-tool and allod-symbolizer",
        "https://www.gnu.org/software/libc/",
        _libc_version,
        _said(
            "The sources of these programs and what builds them are part of Allod's sources, in\n"
            "tools/programs: they can be linked with another version of the library."
        ),
    ),
)
