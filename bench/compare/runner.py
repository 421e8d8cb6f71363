"""Runs one workload once under one allocator."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.compare.cases import Case
from bench.compare.peers import ROOT, Peer
from bench.compare.processes import RunError, output_of
from bench.compare.run import Run

_PREPARE_SECONDS = 1200.0
# What a script may need to find its program; no option of an allocator is among them.
_FOR_SCRIPTS = ("PATH", "HOME", "TMPDIR")
_MODULES = f"{ROOT}:{ROOT / 'tools'}"


def environment(peer: Peer, *, script: bool = False) -> dict[str, str]:
    """All the variables that a workload sees: no option that its allocator does not need."""
    library = str(peer.library or "")
    if script:
        kept = {name: os.environ[name] for name in _FOR_SCRIPTS if name in os.environ}
        # The peer's variables are for the program, and not for the script.
        given = json.dumps(dict(peer.variables))
        ours = {
            "PYTHONPATH": _MODULES,
            "BENCH_PRELOAD": library,
            "BENCH_VARIABLES": given,
        }
        return {**kept, **ours}
    variables = {"PATH": os.defpath, **dict(peer.variables)}
    if library:
        behind = variables.get("LD_PRELOAD", "")
        variables["LD_PRELOAD"] = ":".join(filter(None, (library, behind)))
        variables["BENCH_EXPECT"] = library
    return variables


def command(programs: Path, case: Case, *, quick: bool) -> list[str]:
    """The command line of a workload."""
    if case.script:
        return [*_script(case), *case.arguments(quick), *(["--quick"] if quick else [])]
    return [str(programs / case.program), *case.arguments(quick)]


def _script(case: Case) -> list[str]:
    return [sys.executable, "-m", f"bench.programs.{case.program}"]


def prepare(case: Case, *, may_install: bool) -> None:
    """Lets a script install and make what it needs; LeftOut says that it cannot."""
    variables = {**os.environ, "PYTHONPATH": _MODULES}
    options = ["--prepare", *([] if may_install else ["--no-install"])]
    line = [*_script(case), *case.arguments(quick=False), *options]
    output_of(line, variables, _PREPARE_SECONDS)


def run_once(
    programs: Path, case: Case, peer: Peer, *, quick: bool, number: int, timeout: float
) -> Run:
    """Runs a workload once; RunError says what went wrong."""
    variables = environment(peer, script=case.script)
    text = output_of(command(programs, case, quick=quick), variables, timeout)
    return read(text, case, peer, number)


def read(text: str, case: Case, peer: Peer, number: int) -> Run:
    """What a workload printed; RunError if that is not what it should be."""
    try:
        report = json.loads(text)
    except json.JSONDecodeError as error:
        raise RunError(f"unreadable output: {text[:200]!r}") from error
    try:
        _verify_allocator(report, peer)
        return Run.read(report, case, peer.name, number)
    except KeyError as error:
        raise RunError(f"the output lacks {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise RunError(f"unreadable output: {error}") from error


def _verify_allocator(report: Mapping[str, Any], peer: Peer) -> None:
    source = Path(report["malloc_from"] or "unknown")
    if peer.library is None:
        if not source.name.startswith("libc.so"):
            raise RunError(f"malloc comes from {source}, not from the C library")
    elif not report["expected_library"]:
        raise RunError(f"{peer.library} was not loaded")
    elif source.resolve() != peer.library:
        raise RunError(f"malloc comes from {source}, not from {peer.library}")
