"""Packs the crates for Rust, as a registry takes them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from allod.console import Failure

from workshop.build import building
from workshop.paths import BUILD, ROOT, version

RUST = ROOT / "rust"
TARGET = BUILD / "rust"
CRATES = ("allod-sys", "allod")
# Older ones cannot pack crates that need each other.
OLDEST_CARGO = (1, 90)


class CargoUnavailable(Failure):
    """There is no cargo, or not what the crates depend on."""


def cargo(
    *arguments: str, directory: Path = RUST, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs cargo, whatever its status is. What it says is in standard output."""
    return subprocess.run(
        ["cargo", *arguments],
        cwd=directory,
        env={**os.environ, "CARGO_TARGET_DIR": str(TARGET), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def make_crates(folder: Path) -> list[Path]:
    """Packs the crates into a folder, without compiling them; cargo fetches what they need."""
    if shutil.which("cargo") is None:
        raise CargoUnavailable("cargo is missing")
    told = re.match(r"cargo (\d+)\.(\d+)", cargo("--version").stdout)
    if told is None or (int(told[1]), int(told[2])) < OLDEST_CARGO:
        raise CargoUnavailable("cargo is older than {}.{}".format(*OLDEST_CARGO))
    fetched = cargo("fetch", "--locked")
    if fetched.returncode != 0:
        raise CargoUnavailable(f"crates cannot be fetched: {fetched.stdout}")
    with building("rust"):
        packed = cargo(
            *("package", "--allow-dirty", "--no-verify", "--offline"),
            *(word for name in CRATES for word in ("--package", name)),
        )
        if packed.returncode != 0:
            raise Failure(f"cargo cannot pack the crates\n{packed.stdout}")
        names = [f"{name}-{version()}.crate" for name in CRATES]
        return [Path(shutil.copy(TARGET / "package" / name, folder)) for name in names]
