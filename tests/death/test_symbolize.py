"""./allod symbolize names what a report leaves as addresses, from files that are those that ran."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from commands import allod
from surface.black_box import environment

# Nothing of the program is exported, so that the library knows none of its names.
PROGRAM = """\
#include <stdlib.h>
void* of_library(void);
static __attribute__((noinline)) void frees(void* block) {
  free(block);
  __asm__ volatile("" ::: "memory");
}
static inline __attribute__((always_inline)) void inlined(void* block) {
  frees(block);
}
int main(void) {
  void* block = of_library();
  inlined(block);
  inlined(block);
  return 0;
}
"""
LIBRARY = """\
#include <stdlib.h>
static __attribute__((noinline)) void* allocates(void) {
  void* block = malloc(100);
  __asm__ volatile("" ::: "memory");
  return block;
}
void* of_library(void) {
  void* block = allocates();
  __asm__ volatile("" ::: "memory");
  return block;
}
"""
STACKS = [
    r"allod:   allocated by thread \d+:",
    r"allod:     #0 malloc \S+",
    r"allod:     #1 allocates \S+/library\.c:3",
    r"allod:     #2 of_library \S+/library\.c:8",
    r"allod:     #3 main \S+/program\.c:11",
    r"allod:   freed by thread \d+:",
    r"allod:     #0 free \S+",
    r"allod:     #1 frees \S+/program\.c:4",
    r"allod:     #2 inlined \S+/program\.c:8",
    r"allod:     #3 main \S+/program\.c:12",
    r"allod:   this call by thread \d+:",
    r"allod:     #0 free \S+",
    r"allod:     #1 frees \S+/program\.c:4",
    r"allod:     #2 inlined \S+/program\.c:8",
    r"allod:     #3 main \S+/program\.c:13",
]


@dataclass(frozen=True)
class Desk:
    """A program, its library, and what was said of it in both forms."""

    folder: Path
    program: Path
    library: Path
    report: Path

    def compile(self, *flags: str) -> None:
        """Makes both files."""
        source = self.folder / "library.c"
        source.write_text(LIBRARY)
        command: list[str | Path] = ["cc", "-g", "-O1", "-fno-optimize-sibling-calls"]
        command += flags
        subprocess.run(
            [*command, "-shared", "-fPIC", source, "-o", self.library], check=True
        )
        source = self.folder / "program.c"
        source.write_text(PROGRAM)
        command += ["-Wno-use-after-free", source, self.library]
        subprocess.run([*command, "-o", self.program], check=True)

    def misuse(self, preloaded: Path, options: dict[str, str]) -> None:
        """Has a report written."""
        with self.report.open("w") as out:
            subprocess.run(
                [self.program],
                env=environment(preloaded) | options,
                stderr=out,
                check=False,
            )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(
        tmp_path,
        tmp_path / "a program",
        tmp_path / "library.so",
        tmp_path / "report",
    )


def symbolize(
    *words: str | Path, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    return allod("symbolize", *words, given=text)


def holds_stacks(output: str) -> bool:
    """The stacks are there, each from its first frame to main."""
    lines = output.splitlines()
    position = 0
    for pattern in STACKS:
        while position < len(lines) and not re.fullmatch(pattern, lines[position]):
            position += 1
        if position == len(lines):
            return False
    return True


TEXT: dict[str, str] = {}
JSON = {"ALLOD_SHOW_ERRORS": "0", "ALLOD_REPORT_FD": "2"}


@pytest.mark.parametrize("options", [TEXT, JSON], ids=["text", "json"])
@pytest.mark.parametrize("kind", ["-pie", "-no-pie"])
def test_functions_files_and_lines(
    kind: str, options: dict[str, str], desk: Desk, liballod_debug: Path
) -> None:
    """Of the program and of a library, static functions and inlined ones among them."""
    desk.compile(*([] if kind == "-pie" else ["-no-pie", "-fno-pie"]))
    desk.misuse(liballod_debug, options)
    text = desk.report.read_text()
    assert "allocates" not in text
    result = symbolize(desk.report)
    assert (result.returncode, result.stderr) == (0, "")
    assert holds_stacks(result.stdout), result.stdout
    assert "double free" in result.stdout.splitlines()[0]
    assert symbolize(text=text).stdout == result.stdout


def test_the_hardened_library_s_too(desk: Desk, liballod_hardened: Path) -> None:
    desk.compile()
    desk.misuse(liballod_hardened, {})
    result = symbolize(desk.report)
    assert re.search(r"#1 frees \S+/program\.c:4\n", result.stdout), result.stdout
    assert re.search(r"#3 main \S+/program\.c:13\n", result.stdout), result.stdout


def test_what_is_no_report_is_copied(desk: Desk, liballod_debug: Path) -> None:
    """So that the output of a program can be given as it is."""
    desk.compile()
    desk.misuse(liballod_debug, {})
    before = 'one line\n{"allod":"error", cut off\n'
    desk.report.write_text(f"{before}{desk.report.read_text()}and after\n")
    output = symbolize(desk.report).stdout
    assert output.startswith(before)
    assert output.endswith("and after\n")
    assert holds_stacks(output), output


@pytest.mark.parametrize("options", [TEXT, JSON], ids=["text", "json"])
def test_a_log_that_writes_something_in_front_of_each_line(
    options: dict[str, str], desk: Desk, liballod_debug: Path
) -> None:
    """And lines of others in between; what is in front stays there."""
    desk.compile()
    desk.misuse(liballod_debug, options)
    front = "Nov 30 12:00:00 host job #7[123]: "
    lines = desk.report.read_text().splitlines()
    log = "".join(f"{front}{line}\r\n{front}a line of another\n" for line in lines)
    output = symbolize(text=log).stdout.splitlines()
    ours = [line for line in output if not line.endswith(" a line of another")]
    assert len(output) - len(ours) == len(lines)
    assert all(line.startswith(front) for line in ours), ours
    assert holds_stacks("\n".join(line.removeprefix(front) for line in ours)), ours


def test_stripped_files_have_names_by_their_debug_files(
    desk: Desk, liballod_debug: Path
) -> None:
    """Which lie beside them, under the names that they say."""
    desk.compile("-pie")
    for file in (desk.program, desk.library):
        debug = f"{file}.debug"
        subprocess.run(["objcopy", "--only-keep-debug", file, debug], check=True)
        subprocess.run(["strip", file], check=True)
        link = f"--add-gnu-debuglink={debug}"
        subprocess.run(["objcopy", link, file], check=True)
    desk.misuse(liballod_debug, {})
    result = symbolize(desk.report)
    assert holds_stacks(result.stdout), result.stdout + result.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [(TEXT, "is newer than the report"), (JSON, "has changed since the report")],
    ids=["text", "json"],
)
def test_a_file_that_has_changed_names_nothing(
    options: dict[str, str], reason: str, desk: Desk, liballod_debug: Path
) -> None:
    """It is said, and the frames in it stay as they are; those of other files have names."""
    desk.compile()
    desk.misuse(liballod_debug, options)
    kept = desk.library.read_bytes()
    desk.compile("-O0")
    desk.library.write_bytes(kept)
    written = desk.report.stat().st_mtime
    os.utime(desk.library, (written - 10, written - 10))
    os.utime(desk.program, (written + 10, written + 10))
    result = symbolize(desk.report)
    assert result.stderr == (
        f"allod: warning: {desk.program} {reason}; its frames stay as they are\n"
    )
    assert f"({desk.program}+0x" in result.stdout
    assert "#1 allocates" in result.stdout
    assert "frees" not in result.stdout


def test_a_function_that_lies_elsewhere_tells_that_a_file_has_changed(
    desk: Desk, liballod_debug: Path
) -> None:
    """Where there is no build id, as in a text, and no time, as in a pipe."""
    desk.compile()
    desk.misuse(liballod_debug, {})
    text = re.sub(r"of_library\+0x[0-9a-f]+", "of_library+0x1", desk.report.read_text())
    result = symbolize(text=text)
    assert result.stderr == (
        f"allod: warning: {desk.library} has changed since the report;"
        " its frames stay as they are\n"
    )


def test_a_path_that_means_something_to_a_terminal(
    desk: Desk, liballod_debug: Path
) -> None:
    """The report has it as JSON would, on the line of its frame, and it is found all the same."""
    odd = replace(desk, program=desk.folder / "a\x1b[1m\nprogram")
    odd.compile()
    odd.misuse(liballod_debug, {})
    text = odd.report.read_text()
    assert all(line.startswith("allod: ") for line in text.splitlines())
    assert f'("{odd.folder}/a\\u001b[1m\\u000aprogram"+0x' in text
    assert holds_stacks(symbolize(odd.report).stdout)


def test_a_file_that_is_not_there_is_named(desk: Desk, liballod_debug: Path) -> None:
    desk.compile()
    desk.misuse(liballod_debug, {})
    desk.library.unlink()
    result = symbolize(desk.report)
    assert result.returncode == 0
    assert result.stderr == (
        f"allod: warning: no such file: {desk.library}; its frames stay as they are\n"
    )
    assert "#1 frees" in result.stdout


def test_a_report_that_cannot_be_read(tmp_path: Path) -> None:
    result = symbolize(tmp_path / "missing")
    assert result.returncode == 1
    assert result.stderr == (
        f"allod: error: {tmp_path}/missing cannot be read: No such file or directory\n"
    )
