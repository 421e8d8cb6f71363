"""Tracers find the probes, and their arguments."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import DebianPackages

PROBE = re.compile(
    r"Provider: allod\n\s+Name: (\w+)\n\s+Location: (0x\w+), Base: (0x\w+), .*\n"
    r"\s+Arguments: (.*)\n"
)


def output_of(*command: str | Path) -> str:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout


def test_the_notes_name_every_probe_and_an_instruction_that_does_nothing(
    library: Path,
) -> None:
    probes = PROBE.findall(output_of("readelf", "--notes", "--wide", library))
    assert {name for name, *_ in probes} == {"sample_allocated", "sample_freed"}
    for _, place, _, arguments in probes:
        assert len(arguments.split()) == 4
        assert all(each.startswith("8@") for each in arguments.split())
        code = output_of(
            *("objdump", "-d", f"--start-address={place}"),
            *(f"--stop-address={int(place, 16) + 4}", library),
        )
        assert re.search(rf"{int(place, 16):x}:.*\bnop\b", code), code


# The address is printed by the program, between the two.
GDB = """
set breakpoint pending off
set print address off
set pagination off
set debuginfod enabled off
break main
run
break -probe-stap allod:sample_allocated
break -probe-stap allod:sample_freed
continue
printf "allocated %d %#lx ", $_probe_argc, $_probe_arg0
printf "%d %d %d\\n", $_probe_arg1, $_probe_arg2, $_probe_arg3
continue
printf "freed %d %#lx ", $_probe_argc, $_probe_arg0
printf "%d %d %d\\n", $_probe_arg1, $_probe_arg2, $_probe_arg3
kill
"""


def test_a_debugger_sees_the_arguments(
    build_dir: Path, tmp_path: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("gdb")
    script = tmp_path / "script"
    script.write_text(GDB)
    program = build_dir / "tests" / "profile" / "probed"
    text = output_of("gdb", "-nx", "-batch", "-x", script, program)
    if "ptrace" in text:
        pytest.skip("nobody may look into programs here")
    block = re.search(r"^(0x\w+)$", text, re.MULTILINE)
    assert block is not None, text
    # An address, bytes as asked for, bytes that it stands for, and frames, or milliseconds.
    allocated = re.search(r"^allocated 4 (\w+) 1000 1024 (\d+)$", text, re.MULTILINE)
    freed = re.search(r"^freed 4 (\w+) 1000 1024 (\d+)$", text, re.MULTILINE)
    assert allocated is not None and freed is not None, text
    assert allocated[1] == freed[1] == block[1]
    assert int(allocated[2]) >= 3
