"""The live page of programs for other systems than this one: another processor, another libc."""

from __future__ import annotations

import gzip
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from checks import versions
from long_runs import shortly
from workshop.build import ensure_live_built, product
from workshop.packages import PackagesUnavailable, ensure_packages

from .conftest import sample_all
from .watched import watched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="what is built here is built on x86-64"
    ),
]
SOURCE = Path(__file__).with_name("holds.c")


@dataclass(frozen=True)
class Kind:
    """A system: its preset, its compiler, and what runs its programs here."""

    preset: str
    compiler: str
    packages: tuple[str, ...]
    emulator: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.preset


KINDS = (
    Kind("musl", "musl-gcc", ("musl-tools",)),
    Kind(
        "arm64",
        "aarch64-linux-gnu-gcc",
        ("gcc-aarch64-linux-gnu", "qemu-user-static"),
        # Static, so that it hands LD_PRELOAD on and does not follow it.
        ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"),
    ),
)


# The other is built in the same way, for an emulator.
USUAL = "musl"


@pytest.fixture(
    params=shortly(KINDS, lambda kind: kind.preset == USUAL),
    ids=str,
)
def kind(request: pytest.FixtureRequest) -> Kind:
    """A system for which everything can be built and run."""
    found: Kind = request.param
    try:
        ensure_packages(found.packages)
        ensure_live_built(found.preset)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    return found


def test_the_page_shows_the_heap_and_names_functions(
    kind: Kind, clean: dict[str, str], tmp_path: Path
) -> None:
    program = tmp_path / "holds"
    command = [kind.compiler, "-g", "-O1", "-fno-omit-frame-pointer"]
    subprocess.run([*command, "-o", program, SOURCE], check=True)
    libraries = [
        product(name, kind.preset) for name in ("liballod-live.so", "liballod.so")
    ]
    with watched(
        (*kind.emulator, program), libraries, tmp_path, clean, profile="0"
    ) as process:
        sample_all(process)
        process.do("hold")
        page = process.ask("/")
        state = process.fresh_state()
        profile = process.ask("/debug/pprof/heap")
    assert page.status == 200
    assert b"<html" in gzip.decompress(page.body)
    assert state["now"]["live"] > 2_000_000
    assert b"hold_blocks" in gzip.decompress(profile.body)


def test_the_server_for_arm64_loads_with_glibc_2_17() -> None:
    try:
        library = ensure_live_built("arm64")
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    assert list(versions.complaints(library)) == []
