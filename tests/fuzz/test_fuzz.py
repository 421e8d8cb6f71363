"""Each fuzzer goes through what it knows and a bounded number of new inputs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from allod import paths

FOLDER = Path(__file__).parent
FUZZERS = ("fuzz_space", "fuzz_slab", "fuzz_heap")
RUNS = 20_000
MOST_SECONDS = 20
MOST_FILES = 60

pytestmark = pytest.mark.slow


def _program(name: str) -> Path:
    program = paths.build_dir("fuzz") / "tests" / name
    if not program.exists():
        pytest.skip(f"{program} is not built: run ./allod test")
    return program


@pytest.mark.parametrize("name", FUZZERS)
def test_no_input_breaks_a_promise(name: str, tmp_path: Path) -> None:
    command = [
        str(_program(name)),
        "-seed=1",
        f"-runs={RUNS}",
        f"-max_total_time={MOST_SECONDS}",
        "-timeout=10",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={tmp_path}/",
        str(tmp_path),
        str(FOLDER / "corpus" / name),
    ]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=10 * MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"$ {' '.join(command)}\n{done.stdout[-8000:]}"


@pytest.mark.parametrize("name", FUZZERS)
def test_every_fuzzer_knows_something(name: str) -> None:
    assert any((FOLDER / "corpus" / name).iterdir())


def test_what_is_known_is_small() -> None:
    known = [path for path in (FOLDER / "corpus").rglob("*") if path.is_file()]
    assert len(known) < MOST_FILES
    assert max(path.stat().st_size for path in known) <= 4096
