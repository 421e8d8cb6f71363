"""What Allod's libraries are expected to do, from expected.toml."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from bench.security.cases import Case

FILE = Path(__file__).with_name("expected.toml")


class ExpectationError(Exception):
    """expected.toml says nothing of a case, or names one that is not there."""


def load(path: Path = FILE) -> dict[str, dict[str, str]]:
    """By library and by what it is said of: a family, a defect, or one case."""
    return tomllib.loads(path.read_text())


def wanted(said: Mapping[str, str], case: Case) -> frozenset[str]:
    """The outcomes that are right; the most exact entry decides."""
    for key in (case.key, f"{case.family}: {case.name}", case.family):
        if key in said:
            return frozenset(said[key].split(" or "))
    raise ExpectationError(f"nothing is expected of {case.key}")
