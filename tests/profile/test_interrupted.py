"""Who stops a program by a signal gets what was measured until then, and is told where it is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from workshop.paths import ROOT

# Allocates without end, so that most signals interrupt malloc.
SERVER = """\
kept = [bytearray(2000) for i in range(10000)]
print('ready', flush=True)
while True:
    [str(i) for i in range(1000)]
"""


def interrupted(
    words: Sequence[str], folder: Path, number: signal.Signals
) -> tuple[int, str]:
    """Runs ./allod WORDS until the program is ready, and sends the signal to both, as a terminal
    does; the status and what was said."""
    with subprocess.Popen(
        [str(ROOT / "allod"), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, number)
        _, said = process.communicate(timeout=120)
        return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_profile_is_written(tmp_path: Path, number: signal.Signals) -> None:
    words = ["run", "--profile", "--", sys.executable, "-c", SERVER]
    status, said = interrupted(words, tmp_path, number)
    # Python turns SIGINT into an exception, whose end is the program's.
    assert status == 128 + number
    name = Path(sys.executable).name
    assert f"wrote {name}.pb.gz" in said, said
    assert (tmp_path / f"{name}.pb.gz").stat().st_size > 0
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)


def test_a_handler_that_resets_itself_still_leads_to_a_profile(tmp_path: Path) -> None:
    """As that of Node.js, which raises the signal again."""
    source = tmp_path / "resets.c"
    source.write_text(
        "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        'static void on(int n) { write(2, "own\\n", 4); raise(n); }\n'
        "int main(void) {\n"
        "  struct sigaction a = {.sa_handler = on, .sa_flags = (int)SA_RESETHAND}, b;\n"
        "  sigaction(SIGINT, 0, &b);\n"
        "  if (b.sa_handler != SIG_DFL) return 1;\n"
        "  sigaction(SIGINT, &a, 0); sigaction(SIGINT, 0, &b);\n"
        "  if (b.sa_handler != on || !(b.sa_flags & (int)SA_RESETHAND)) return 2;\n"
        "  for (int i = 0; i < 20000; ++i) if (!malloc(1000)) return 3;\n"
        '  puts("ready"); fflush(stdout);\n'
        "  for (;;) pause();\n}\n"
    )
    subprocess.run(
        ["cc", "-O0", "-o", tmp_path / "resets", source, "-fno-builtin"], check=True
    )
    words = ["run", "--profile", "--", str(tmp_path / "resets")]
    status, said = interrupted(words, tmp_path, signal.SIGINT)
    assert status == 128 + signal.SIGINT
    assert said.startswith("own\n") and "wrote resets.pb.gz" in said, said


def test_statistics_are_shown(tmp_path: Path) -> None:
    words = ["run", "--stats", "--", sys.executable, "-c", SERVER]
    status, said = interrupted(words, tmp_path, signal.SIGTERM)
    assert status == -signal.SIGTERM
    assert "allocated" in said or "live" in said, said


def test_leaks_are_found(tmp_path: Path) -> None:
    source = tmp_path / "leaks.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
        "__attribute__((noinline)) void lose(void) { memset(malloc(5000), 1, 5000); }\n"
        "int main(void) { for (int i = 0; i < 9; ++i) lose();"
        ' puts("ready"); fflush(stdout); for (;;) free(malloc(100)); }\n'
    )
    subprocess.run(
        ["cc", "-g", "-O0", "-o", tmp_path / "leaks", source, "-fno-builtin"],
        check=True,
    )
    words = ["leaks", "--", str(tmp_path / "leaks")]
    status, said = interrupted(words, tmp_path, signal.SIGINT)
    assert status == 128 + signal.SIGINT
    assert "leak" in said and "lose" in said, said


def test_a_trace_is_whole(tmp_path: Path) -> None:
    words = ["record", "--output", "x.trace", "--", sys.executable, "-c", SERVER]
    status, said = interrupted(words, tmp_path, signal.SIGTERM)
    assert status == 128 + signal.SIGTERM
    assert "wrote x.trace" in said, said
    assert (tmp_path / "x.trace").stat().st_size > 10_000


def test_shells_in_between_leave_no_files(tmp_path: Path) -> None:
    """The process that allocated most has the plain name."""
    script = tmp_path / "shim"
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    program = "kept = [bytearray(2000) for i in range(50000)]"
    script.write_text(
        f'#!/bin/bash\nx=$(/bin/echo a); env true\n{python} -c "{program}"\n'
    )
    script.chmod(0o755)
    done = subprocess.run(
        [ROOT / "allod", "run", "--profile", "--", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    written = {each.name for each in tmp_path.iterdir()} - {"shim"}
    ends = ("pb.gz", "html")
    assert written == {f"shim{kind}.{end}" for kind in ("", ".peak") for end in ends}
    assert all((tmp_path / name).stat().st_size < 300_000 for name in written)
    assert "wrote shim.pb.gz" in done.stderr


def test_without_samples_nothing_is_written(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "allod", "run", "--profile", "--", "/bin/true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(tmp_path.iterdir()) == []
    assert "too little for a sample" in done.stderr
