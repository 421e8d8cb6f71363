"""Packages of crates.io, fetched by cargo as it is set up on this machine."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.peers.recipes import Recipe


class CrateError(Exception):
    """A package cannot be had; the text says why."""


def fetch(recipe: Recipe, run: Callable[[Sequence[str], Path], None]) -> Path:
    """The recipe's package, with the pinned contents. ``run`` runs a command in a folder."""
    if (found := _in_cache(recipe)) is not None:
        return found
    version = recipe.crate_version.partition("+")[0]
    # Fetches this package alone, where "cargo fetch" takes all that it depends on as well;
    # in a folder where no project of Rust can be meant.
    run(["cargo", "info", f"{recipe.crate}@{version}"], Path("/"))
    if (found := _in_cache(recipe)) is None:
        raise CrateError(f"cargo fetched no {recipe.crate} {recipe.crate_version}")
    return found


def _in_cache(recipe: Recipe) -> Path | None:
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    name = f"{recipe.crate}-{recipe.crate_version}.crate"
    for package in sorted(home.glob(f"registry/cache/*/{name}")):
        if hashlib.sha256(package.read_bytes()).hexdigest() != recipe.keys["sha256"]:
            raise CrateError(f"{package} is not what the recipe pins")
        return package
    return None
