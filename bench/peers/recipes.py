"""Recipes: what a peer is built from and how, read from recipes.toml.

Keys of a recipe:

* ``like``: the recipe it takes every other key from; its tables are united.
* ``version``, ``licence`` of the allocator; ``crate``, ``crate-version``, ``sha256`` of the
  package that carries its sources; ``folder``: where in the package they begin.
* ``steps``: the commands, run in an empty folder; ``library``: what they leave in it.
  ``{source}`` is the folder above, ``{jobs}`` how many processes may run at once, and any
  other name in braces a key of the recipe.
* Or, instead of these two, ``sources`` (patterns below the folder; none that the expression
  ``without`` matches), ``includes``, ``definitions``, ``flags`` (more for one processor:
  ``flags-aarch64``), ``c-flags``, ``cxx-flags``, ``link-flags`` for plain/CMakeLists.txt.
* ``variables``: what a program under this allocator must have in its environment.
"""

import hashlib
import json
import platform
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PLAIN = HERE / "plain"
RECIPES = HERE / "recipes.toml"
_NEEDED = ("version", "licence", "crate", "crate-version", "sha256")


class RecipeError(Exception):
    """A recipe is incomplete or does not fit its sources."""


@dataclass(frozen=True)
class Recipe:
    """How one peer is built; ``keys`` holds all that recipes.toml says of it."""

    name: str
    keys: Mapping[str, Any] = field(repr=False)

    @property
    def version(self) -> str:
        return str(self.keys["version"])

    @property
    def crate(self) -> str:
        return str(self.keys["crate"])

    @property
    def crate_version(self) -> str:
        return str(self.keys["crate-version"])

    @property
    def variables(self) -> dict[str, str]:
        return dict(self.keys.get("variables", {}))

    @property
    def folder_name(self) -> str:
        """Names the built peer; differs if anything differs that it is built from."""
        depends = json.dumps([self.name, self.keys, platform.machine()], sort_keys=True)
        plain = (PLAIN / "CMakeLists.txt").read_text() if "sources" in self.keys else ""
        key = hashlib.sha256(f"{depends}{plain}".encode()).hexdigest()[:8]
        return f"{self.name}-{self.version}-{key}"

    @property
    def library(self) -> str:
        return str(self.keys.get("library", "libpeer.so")).format(**self.keys)

    def steps(self, package: Path, jobs: int) -> list[list[str]]:
        """The commands that build the library from the unpacked package."""
        source = package / self.keys.get("folder", ".")
        steps = self.keys.get("steps") or self._plain_steps(source)
        return [
            [part.format(**self.keys, source=source, jobs=jobs) for part in step]
            for step in steps
        ]

    def _plain_steps(self, source: Path) -> list[list[str]]:
        flags = [
            *self.keys.get("flags", []),
            *self.keys.get(f"flags-{platform.machine()}", []),
        ]
        definitions = [
            f"{name}={value}"
            for name, value in self.keys.get("definitions", {}).items()
        ]
        lists = {
            "SOURCES": self._sources(source),
            "INCLUDES": [
                f"{source}/{folder}" for folder in self.keys.get("includes", [])
            ],
            "DEFINITIONS": definitions,
            "FLAGS": flags,
            "C_FLAGS": self.keys.get("c-flags", []),
            "CXX_FLAGS": self.keys.get("cxx-flags", []),
            "LINK_FLAGS": self.keys.get("link-flags", []),
        }
        settings = [f"-D{name}={';'.join(values)}" for name, values in lists.items()]
        return [
            [
                "cmake",
                "-S",
                str(PLAIN),
                "-B",
                ".",
                "-DCMAKE_BUILD_TYPE=Release",
                *settings,
            ],
            ["cmake", "--build", ".", "--parallel", "{jobs}"],
        ]

    def _sources(self, source: Path) -> list[str]:
        without = re.compile(self.keys.get("without", r"(?!)"))
        found: dict[str, None] = {}
        for pattern in self.keys["sources"]:
            matches = sorted(
                path
                for path in source.glob(pattern)
                if not without.search(str(path.relative_to(source)))
            )
            if not matches:
                raise RecipeError(f"{self.crate} has no {pattern}")
            found |= dict.fromkeys(map(str, matches))
        return list(found)


def load(path: Path = RECIPES) -> dict[str, Recipe]:
    """All recipes of the file, by name."""
    try:
        tables = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: {error}") from error
    return {name: _complete(name, tables) for name in tables}


def _complete(name: str, tables: Mapping[str, Any]) -> Recipe:
    keys = dict(tables[name])
    base = keys.pop("like", None)
    if base is not None:
        if base not in tables or "like" in tables[base]:
            raise RecipeError(f"{name} is like {base}, which is no recipe of its own")
        for key, value in tables[base].items():
            keys[key] = (
                {**value, **keys.get(key, {})}
                if isinstance(value, dict)
                else (keys.get(key, value))
            )
    for key in _NEEDED:
        if not isinstance(keys.get(key), str):
            raise RecipeError(f"{name} does not say its {key}")
    if ("steps" in keys) == ("sources" in keys) or ("steps" in keys) != (
        "library" in keys
    ):
        raise RecipeError(f"{name} needs either steps and library, or sources")
    return Recipe(name, keys)
