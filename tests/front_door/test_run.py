"""`./allod run` runs a program as if it had been started alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from allod import preload
from allod.console import Failure
from commands import ALLOD, allod

MAPPED = "import os; print([m for m in open('/proc/self/maps') if 'liballod' in m][0])"


# Paths that LD_PRELOAD cannot name


@pytest.mark.parametrize("name", ["two words", "a:colon", "$ORIGIN", "a 'quote':"])
def test_a_library_at_any_path_is_preloaded(
    name: str, liballod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / name
    folder.mkdir()
    library = Path(shutil.copy(liballod, folder))
    variables = {"LD_PRELOAD": preload.preloaded(library)}
    done = subprocess.run(
        ["sh", "-c", "cat /proc/self/maps"],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(library) in done.stdout
    assert done.stderr == ""
    # Again, and there is still one link.
    assert preload.preloaded(library) == variables["LD_PRELOAD"]
    assert len(list((tmp_path / f"allod-{os.geteuid()}").iterdir())) == 1


def test_no_link_is_kept_where_others_could_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    library = tmp_path / "a:b" / "library.so"
    own = tmp_path / f"allod-{os.geteuid()}"
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(Failure, match="others than this user can write"):
        preload.plain_name(library)
    own.rmdir()
    own.symlink_to(tmp_path)
    with pytest.raises(Failure, match="others than this user can write"):
        preload.plain_name(library)
    own.unlink()
    tmp_path.chmod(0o777)
    with pytest.raises(Failure, match="others than this user can write"):
        preload.plain_name(library)
    tmp_path.chmod(0o1777)
    assert preload.plain_name(library).is_symlink()


# Run


def test_run_preloads_the_library(liballod: Path) -> None:
    done = allod("run", "--", "python3", "-c", MAPPED)
    assert done.returncode == 0, done.stderr
    assert str(liballod.resolve()) in done.stdout


def test_run_preloads_the_debug_library_on_request(liballod_debug: Path) -> None:
    done = allod("run", "--debug", "--", "python3", "-c", MAPPED)
    assert done.returncode == 0, done.stderr
    assert str(liballod_debug.resolve()) in done.stdout


def test_run_preloads_the_hardened_library_on_request(liballod_hardened: Path) -> None:
    done = allod(
        "run", "--hardened", "--no-check-copies", "--", "python3", "-c", MAPPED
    )
    assert done.returncode == 0, done.stderr
    assert str(liballod_hardened.resolve()) in done.stdout


@pytest.mark.parametrize(
    ("options", "are_checked"),
    [
        ((), False),
        (("--check-copies",), True),
        (("--hardened",), True),
        (("--hardened", "--check-copies"), True),
        (("--hardened", "--no-check-copies"), False),
        (("--debug",), False),
    ],
)
def test_run_checks_copies_on_request_and_with_the_hardened_library(
    options: tuple[str, ...], are_checked: bool, build_dir: Path
) -> None:
    code = "print(open('/proc/self/maps').read())"
    done = allod("run", *options, "--", "python3", "-c", code)
    assert done.returncode == 0, done.stderr
    library = build_dir / "liballod-copies.so"
    assert (str(library.resolve()) in done.stdout) == are_checked


@pytest.mark.parametrize(
    ("option", "given", "measures"),
    [
        ("--hardened", "", "None"),
        ("--hardened", "-origin", "-origin"),
        ("--hardened=light", "", "light"),
        ("--hardened=balanced", "-origin", "balanced"),
        ("--hardened=all", "", "all"),
    ],
)
def test_run_takes_a_level_of_the_hardened_library(
    option: str, given: str, measures: str
) -> None:
    """Without one, what the environment says stands."""
    code = "import os; print(os.environ.get('ALLOD_HARDENED'))"
    environment = {"ALLOD_HARDENED": given} if given else {}
    done = allod("run", option, "python3", "-c", code, environment=environment)
    assert (done.returncode, done.stdout) == (0, f"{measures}\n"), done.stderr


def test_run_knows_no_other_level() -> None:
    done = allod("run", "--hardened=lite", "--", "true")
    assert done.returncode == 2
    assert "'lite' is not one of" in done.stderr


def test_run_uses_one_library_at_a_time() -> None:
    done = allod("run", "--hardened", "--debug", "--", "true")
    assert done.returncode == 2
    assert "--debug and --hardened are two libraries: choose one" in done.stderr


@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_run_passes_the_exit_status_through(status: int) -> None:
    assert allod("run", "--", "sh", "-c", f"exit {status}").returncode == status


def test_run_ends_by_the_signal_that_ends_the_program() -> None:
    assert allod("run", "--", "sh", "-c", "kill -USR1 $$").returncode == -signal.SIGUSR1


def test_run_adds_nothing_to_the_output_of_the_program() -> None:
    done = allod("run", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_run_passes_arguments_untouched() -> None:
    words = ["--stats", "-v", "--", "", "two words", "--help"]
    done = allod("run", "--", "printf", "%s\\n", *words)
    assert done.stdout.splitlines() == words


def test_run_keeps_other_preloaded_libraries(liballod: Path) -> None:
    other = "libm.so.6"
    done = allod(
        "run", "--", "printenv", "LD_PRELOAD", environment={"LD_PRELOAD": other}
    )
    assert done.stdout.strip().split(":") == [str(liballod), other]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--stats"], {"ALLOD_SHOW_STATS": "text"}),
        (["--stats=json"], {"ALLOD_SHOW_STATS": "json"}),
        (["-vv"], {"ALLOD_VERBOSE": "2"}),
        (["--purge-delay", "-1"], {"ALLOD_PURGE_DELAY": "-1"}),
        (["-o", "purge-budget=4M"], {"ALLOD_PURGE_BUDGET": "4M"}),
        (["-o", "ALLOD_SHOW_ERRORS=0"], {"ALLOD_SHOW_ERRORS": "0"}),
    ],
)
def test_run_turns_its_options_into_the_library_s(
    arguments: list[str], expected: dict[str, str]
) -> None:
    done = allod("run", *arguments, "--", "env")
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {k: v for k, v in found.items() if k.startswith("ALLOD_")} == expected


def test_run_finds_programs_relative_to_the_caller(tmp_path: Path) -> None:
    shutil.copy("/bin/echo", tmp_path / "here")
    assert allod("run", "--", "./here", "x", directory=tmp_path).stdout == "x\n"


def test_run_works_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(ALLOD)
    done = allod("run", "--", "echo", "x", command=link, directory=tmp_path)
    assert done.stdout == "x\n"


def test_a_program_that_is_not_there_ends_with_127() -> None:
    done = allod("run", "--", "no-such-program")
    assert (done.returncode, done.stdout) == (127, "")
    assert "no-such-program" in done.stderr


@pytest.mark.parametrize("kind", ["plain file", "folder", "script for no shell"])
def test_a_program_that_cannot_be_executed_ends_with_126(
    tmp_path: Path, kind: str
) -> None:
    program = tmp_path / "program"
    if kind == "folder":
        program.mkdir()
    else:
        program.write_text("echo\n")
        program.chmod(0o755 if kind == "script for no shell" else 0o644)
    done = allod("run", "--", program)
    assert done.returncode == 126
    assert str(program) in done.stderr


def test_a_static_program_is_refused_with_a_reason(tmp_path: Path) -> None:
    program = tmp_path / "static"
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", program, source], check=True)
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    for started in (program, script):
        done = allod("run", "--", started)
        assert done.returncode == 126
        assert f"{program} is statically linked" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_program_for_another_processor_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "foreign"
    image = bytearray(Path("/bin/true").read_bytes())
    image[18:20] = (183).to_bytes(2, "little")
    program.write_bytes(image)
    program.chmod(0o755)
    done = allod("run", "--", program)
    assert (done.returncode, done.stdout) == (126, "")
    assert f"{program} is for arm64" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def compile_program(path: Path, source: str, *options: str) -> Path:
    """A program in C."""
    text = path.with_suffix(".c")
    text.write_text(source)
    subprocess.run(["cc", *options, "-o", path, text], check=True)
    return path


def test_a_program_with_an_allocator_of_its_own_is_warned_about(tmp_path: Path) -> None:
    program = compile_program(
        tmp_path / "own",
        "#include <stddef.h>\nvoid *malloc(size_t size) { return NULL; }\n"
        "int main(void) { return 0; }\n",
        *("-fno-builtin", "-rdynamic"),
    )
    done = allod("run", "--", program)
    assert done.returncode == 0
    assert f"warning: {program} has a malloc of its own" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "malloc of its own" not in allod("run", "--", "true").stderr


def test_a_program_with_jemalloc_in_it_is_warned_about(tmp_path: Path) -> None:
    # As in a program that calls it by other names: nothing but its messages tells.
    program = compile_program(
        tmp_path / "own",
        '#include <stdio.h>\nint main(void) { return puts("<jemalloc>: %s") < 0; }\n',
    )
    done = allod("run", "--", program)
    assert done.returncode == 0
    assert f"warning: {program} has jemalloc linked in" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert allod("run", "--", "true").stderr == ""


@pytest.mark.parametrize("linked", ["static", "dynamic"])
def test_a_go_program_is_told_apart(tmp_path: Path, linked: str) -> None:
    # The note that Go's linker writes.
    program = compile_program(
        tmp_path / "go",
        '__asm__(".pushsection .note.go.buildid,\\"a\\",@note\\n"\n'
        '".long 4, 4, 4\\n.asciz \\"Go\\"\\n.byte 0\\n.long 1\\n.popsection");\n'
        "int main(void) { return 0; }\n",
        *(["-static"] if linked == "static" else []),
    )
    done = allod("run", "--", program)
    assert done.returncode == (126 if linked == "static" else 0)
    assert "Go" in done.stderr and "allocator of its own" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_program_that_changes_privileges_is_warned_about(tmp_path: Path) -> None:
    program = tmp_path / "privileged"
    shutil.copy("/bin/true", program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    done = allod("run", "--", program)
    assert done.returncode == 0
    assert f"warning: {program} changes privileges" in done.stderr
    assert len(done.stderr.splitlines()) == 1
