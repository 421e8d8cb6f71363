"""Recording with the library alone, and the programs that read traces."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from workshop.replay import ensure_tools

SECONDS = 60
Info = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """How a recorded program ended, and where its trace is."""

    status: int
    trace: Path
    output: str
    complaints: str


Record = Callable[..., Recorded]


@dataclass(frozen=True)
class Tools:
    """The programs of bench/replay."""

    folder: Path

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs the tool."""
        return _run([self.folder / "trace-tool", *arguments])

    def info(self, trace: Path) -> Info:
        """A summary, of a trace that must be readable."""
        done = self.run("info", trace)
        assert done.returncode == 0, done.stderr
        info: Info = json.loads(done.stdout)
        return info

    def prepare(self, trace: Path) -> Path:
        """The form that replays."""
        prepared = trace.with_suffix(".prepared")
        done = self.run("prepare", trace, prepared)
        assert done.returncode == 0, done.stderr
        return prepared

    def replay(
        self,
        prepared: Path,
        *options: str,
        preload: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Info:
        """What the replay reports; it must succeed."""
        done = _run(
            [self.folder / "replay", "--file", prepared, "--verify", "1", *options],
            {"LD_PRELOAD": ":".join(map(str, preload)), **(environment or {})},
        )
        assert done.returncode == 0, done.stderr
        report: Info = json.loads(done.stdout)
        return report


def _run(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Built where they are not up to date."""
    return Tools(ensure_tools())


@pytest.fixture
def programs(build_dir: Path) -> Path:
    """The folder of the programs of this folder's CMakeLists.txt."""
    return build_dir / "tests" / "trace"


@pytest.fixture
def recorder(build_dir: Path) -> Path:
    """The library that records."""
    return build_dir / "liballod-record.so"


@pytest.fixture
def record(recorder: Path, tmp_path: Path) -> Record:
    """record("ls", "-l", behind=[library], trace=path) runs a program and records it."""
    made = iter(range(1000))

    def run(
        *command: str | Path,
        behind: Sequence[Path] = (),
        trace: Path | None = None,
        stdin: str = "",
    ) -> Recorded:
        path = trace or tmp_path / f"trace-{next(made)}"
        preload = ":".join(map(str, [recorder, *behind]))
        variables = {"LD_PRELOAD": preload, "LIBALLOD_RECORD": str(path)}
        done = _run(command, variables, stdin)
        return Recorded(done.returncode, path, done.stdout, done.stderr)

    return run
