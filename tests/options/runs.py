"""Runs the programs of this folder with options set."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from surface.black_box import SKIPPED, describe, environment, run_program

Json = dict[str, Any]


def run(
    program: Path,
    case: str,
    library: Path,
    directory: Path,
    variables: Mapping[str, str],
) -> subprocess.CompletedProcess[str]:
    """Runs a case with more variables in its environment; skips the test if the case does."""
    result = run_program(
        [program, case], environment(library) | dict(variables), directory
    )
    if result.returncode == SKIPPED:
        pytest.skip(result.stdout.strip())
    return result


def run_well(
    program: Path,
    case: str,
    library: Path,
    directory: Path,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """The same, for a case that must hold."""
    result = run(program, case, library, directory, variables or {})
    if result.returncode != 0:
        pytest.fail(describe(result), pytrace=False)
    return result


def objects(text: str) -> list[Json]:
    """The lines of JSON objects in a text."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
