"""The program that reads the events of traces."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from allod import supplies
from allod.console import Display, Failure, display_for

QUIET_SECONDS = 2.0

Info = dict[str, Any]


def run_tool(title: str, *arguments: str | Path) -> str:
    """What the tool prints; shows after a while that it is at work."""
    command = [_tool(), *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    display: Display | None = None
    wait = QUIET_SECONDS
    try:
        while True:
            try:
                output, complaints = process.communicate(timeout=wait)
                break
            except subprocess.TimeoutExpired:
                wait = 1.0
                if display is None:
                    display = display_for(title)
                display.beat()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if display is not None:
            display.close()
    if process.returncode < 0:
        raise Failure(f"{title}: killed by signal {-process.returncode}")
    if process.returncode != 0:
        raise Failure(complaints.strip() or f"{title} failed")
    return output


def read_info(trace: Path) -> Info:
    """The summary of a trace."""
    _check_file(trace)
    info: Info = json.loads(run_tool(f"reading {trace.name}", "info", trace))
    return info


def dump(trace: Path, most: int | None) -> None:
    """Prints the events as text, as fast as they are taken."""
    _check_file(trace)
    limit = [] if most is None else [str(most)]
    command = [_tool(), "dump", str(trace), *limit]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode > 0:
        raise Failure(done.stderr.strip() or "cannot write to standard output")


def _check_file(trace: Path) -> None:
    if not trace.is_file():
        what = "is not a file" if trace.exists() else "does not exist"
        raise Failure(f"{trace} {what}")


def _tool() -> str:
    return str(supplies.current().trace_programs() / "trace-tool")
