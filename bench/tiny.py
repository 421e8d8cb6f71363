"""The workload programs, started so that they end within seconds, and libraries for them."""

import dataclasses
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.compare import peers, runner
from bench.compare.cases import Case
from bench.compare.peers import Peer
from bench.compare.run import Run

GLIBC = Peer("glibc", None, "any")
Params = Mapping[str, int | str]

# Parameters with which a program ends at once.
TINY: dict[str, dict[str, int]] = {
    "aligned": {"ops": 2_000},
    "bulk": {"count": 300, "rounds": 3},
    "calloc": {"mebibytes": 4, "rounds": 1},
    "cfrac": {"digits": 8, "primes": 40, "rounds": 2},
    "churn": {"threads": 40, "blocks": 50},
    "cores": {"threads": 3, "ops": 600},
    "fragmentation": {"mebibytes": 1, "epochs": 7},
    "generations": {"generations": 3, "objects": 4_000, "threads": 3},
    "heaps": {"ops": 2_000, "blocks": 500, "rounds": 2},
    "holes": {"mebibytes": 2, "threads": 2, "busy": 1, "rest": 100},
    "idle": {"mebibytes": 2, "together": 500, "idle": 100},
    "immediate": {"ops": 20_000},
    "large": {"ops": 5, "live": 2},
    "larson": {"objects": 200, "lives": 6, "ops": 2_000},
    "latency": {"ops": 5_000, "live": 500},
    "locality": {"elements": 1_000, "walks": 2},
    "tailored": {"ops": 20_000},
    "tailored_threads": {"batches": 20},
    "logic": {"inputs": 8, "cubes": 12, "literals": 4, "rounds": 3},
    "many_threads": {"threads": 30, "ops": 30_000, "once": 100},
    "mixed_order": {"blocks": 120, "rounds": 30},
    "nbody": {"bodies": 200, "steps": 3},
    "pareto": {"ops": 20_000, "slots": 2_000},
    "phases": {"megabytes": 2},
    "prodcons": {"batches": 50, "batch": 32, "ring": 4},
    "realloc": {"rounds": 1},
    "replace": {"ops": 5_000, "live": 2_000},
    "rptest": {"rounds": 40, "blocks": 300},
    "scratch": {"blocks": 300, "writes": 20},
    "simple": {"rounds": 2},
    "survivors": {"mebibytes": 2},
    "sweep": {"pairs": 2, "batches": 1},
    "tree": {"depth": 10, "rounds": 2},
    "ttest": {"lives": 3, "rounds": 20},
    "xmalloc": {"batches": 40, "batch": 50, "waiting": 4},
}


def start(
    programs: Path, program: str, params: Params, library: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Ends within seconds: parameters that are not given are tiny ones."""
    arguments = [
        part
        for name, value in {**TINY[program], **params}.items()
        for part in (f"--{name}", str(value))
    ]
    environment = {"PATH": os.defpath}
    if library is not None:
        environment["LD_PRELOAD"] = str(library)
    return subprocess.run(
        [str(programs / program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run(
    programs: Path, program: str, params: Params, library: Path | None = None
) -> dict[str, Any]:
    """What a program that must succeed reports."""
    done = start(programs, program, params, library)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def compile_library(folder: Path, text: str) -> Path:
    """A library of these functions, to be preloaded."""
    source = folder / "library.c"
    library = folder / "library.so"
    source.write_text(f"#include <stdlib.h>\n#include <string.h>\n{text}\n")
    options = ["-shared", "-fPIC", "-fno-builtin"]
    subprocess.run(["cc", *options, "-o", str(library), str(source)], check=True)
    return library


def tiny(case: Case, **params: int) -> Case:
    return dataclasses.replace(
        case, params={**case.params, **TINY[case.program], **params}, quick={}
    )


def run_tiny(programs: Path, case: Case, peer: Peer) -> Run:
    return runner.run_once(programs, case, peer, quick=False, number=1, timeout=60)


def compile_allocator(folder: Path, body: str) -> Peer:
    return peers.from_file("broken", compile_library(folder, body))
