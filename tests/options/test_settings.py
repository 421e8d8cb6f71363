"""Each option: what it accepts, what is said about anything else, and how options are listed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from surface.black_box import Runner, describe, environment, listed_cases, run_program

from options.table import MEANT, NO, OPTIONS

FOLDER = Path(__file__).parent


TABLE = FOLDER.parents[1] / "src" / "settings" / "options.cpp"


VERSION_HEADER = FOLDER.parents[1] / "include" / "allod.h"


ACCEPTED = [(name, value) for name in OPTIONS for value in OPTIONS[name].accepted]


MALFORMED = [(name, value) for name in OPTIONS for value in OPTIONS[name].malformed]


@pytest.fixture
def settings(build_dir: Path) -> Path:
    """The program that does next to nothing."""
    return build_dir / "tests" / "options" / "settings"


def version() -> str:
    """The version, from the public header."""
    found = re.search(r'#define ALLOD_VERSION "([^"]+)"', VERSION_HEADER.read_text())
    assert found is not None
    return found[1]


def variant(library: Path) -> str:
    """What the library calls itself besides its version."""
    return next((v for v in ("debug", "hardened") if v in library.name), "")


def start_line(library: Path) -> str:
    """The pattern of the line that ALLOD_VERBOSE=1 causes."""
    name = re.escape(version())
    if variant(library):
        name += rf" \({variant(library)}\)"
    return rf"allod: {name} serves process \d+\n"


def measures_line(library: Path) -> str:
    """The pattern of the line that ALLOD_VERBOSE=2 causes besides, in the hardened library."""
    if variant(library) != "hardened":
        return ""
    usual = "canary, neighbours, zero, written, quarantine, shuffle, guards, empty"
    return f"allod: measures: {usual}, addresses, positions\n"  # see environment()


def list_of_options(library: Path) -> str:
    """The pattern of what ALLOD_HELP=1 causes."""
    lines = [rf"Allod {re.escape(version())} reads these environment variables:\n"]
    for name, option in OPTIONS.items():
        default = default_of(name, library)
        lines.append(rf"  ALLOD_{name}={option.values}  \(default: {default}\)\n")
        lines.append(r"      [^ \n][^\n]+\n")
    return "".join(lines)


def default_of(name: str, library: Path) -> str:
    """The libraries that look for errors report more."""
    reports = name == "FOREIGN_FREE" and variant(library)
    return "report" if reports else OPTIONS[name].default


@pytest.mark.parametrize("program", ["early", "memory", "settings", "statistics"])
def test_no_case_is_forgotten(program: str, build_dir: Path) -> None:
    """Every case of a program is run by a test of this folder."""
    tests = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py"))
    listed = listed_cases(build_dir / "tests" / "options" / program)
    assert listed
    assert {case for case in listed if f'"{case}"' not in tests} == set()


def test_every_option_of_the_table_is_tested() -> None:
    """The options above are those of the table in the source, in its order."""
    table = TABLE.read_text(encoding="utf-8").split("kOptions[] = {", 1)[1]
    names = re.findall(r'^    \{"([A-Z_]+)", ', table, re.MULTILINE)
    assert names == list(OPTIONS)


def test_silence(preloaded: Runner) -> None:
    """Without options there is nothing to say."""
    result = preloaded.run_well("settings", "nothing")
    assert (result.stdout, result.stderr) == ("", "")


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_accepted_value(name: str, value: str, preloaded: Runner) -> None:
    """The value is taken, and nothing is said unless that is what the option is for."""
    variables = {f"ALLOD_{name}": value}
    result = preloaded.run_well("settings", "nothing", **variables)
    assert "warning" not in result.stderr
    speaks = value not in NO and name in ("HELP", "VERBOSE", "SHOW_STATS")
    assert (result.stderr != "") == speaks, describe(result)


@pytest.mark.parametrize(("name", "value"), MALFORMED)
def test_malformed_value(name: str, value: str, preloaded: Runner) -> None:
    """The value is ignored, and one line says so, with what may have been meant."""
    variables = {f"ALLOD_{name}": value}
    result = preloaded.run_well("settings", "nothing", **variables)
    meant = MEANT.get((name, value))
    assert result.stderr == (
        f"allod: warning: ALLOD_{name}={value} is ignored;"
        f" expected {OPTIONS[name].values}"
        f"{f'; did you mean {meant}?' if meant else ''}\n"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NO_SUCH_OPTION", ""),
        ("", ""),
        ("PURGE", ""),
        ("X" * 200, ""),
        ("verbose", "VERBOSE"),
        ("VERBOSE_", "VERBOSE"),
        ("HELP ", "HELP"),
        ("SHOWSTATS", "SHOW_STATS"),
        ("SHOW_STAST", "SHOW_STATS"),
        ("STATSFILE", "STATS_FILE"),
        ("PURGE_DLAY", "PURGE_DELAY"),
        ("HARDEND", "HARDENED"),
        ("HARDENING", "HARDENED"),
        ("LEAK", "LEAKS"),
        ("GUARD_SAMPLES", "GUARD_SAMPLE"),
        ("LIVE_HOST", "LIVE_HOSTS"),
    ],
)
def test_unknown_option(name: str, meant: str, preloaded: Runner) -> None:
    """It is ignored, and the reader is told which it may have been, and where the names are."""
    variables = {f"ALLOD_{name}": "1"}
    result = preloaded.run_well("settings", "nothing", **variables)
    assert result.stderr == (
        f"allod: warning: unknown option ALLOD_{name} is ignored;"
        f"{f' did you mean ALLOD_{meant}?' if meant else ''}"
        " ALLOD_HELP=1 lists the options\n"
    )


def test_meant_values_are_accepted(preloaded: Runner) -> None:
    """What is suggested is understood."""
    for (name, _), meant in MEANT.items():
        variables = {f"ALLOD_{name}": meant}
        result = preloaded.run_well("settings", "nothing", **variables)
        assert "warning" not in result.stderr


def test_each_warning_once(library: Path, preloaded: Runner) -> None:
    """Every variable gets its line, and what is right among them counts."""
    variables = {
        "ALLOD_NOTHING": "1",
        "ALLOD_VERBOSE": "1",
        "ALLOD_PURGE_DELAY": "soon",
        "ALLOD": "no option",
        "ALLODX_VERBOSE": "7",
        "MY_ALLOD_VERBOSE": "7",
    }
    result = preloaded.run_well("settings", "nothing", **variables)
    lines = sorted(result.stderr.splitlines(keepends=True))
    assert len(lines) == 3
    assert re.fullmatch(start_line(library), lines[0])
    assert lines[1:] == [
        "allod: warning: ALLOD_PURGE_DELAY=soon is ignored;"
        " expected milliseconds, 0 or -1\n",
        "allod: warning: unknown option ALLOD_NOTHING is ignored;"
        " ALLOD_HELP=1 lists the options\n",
    ]


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        (
            {},
            "regions of 64.0 MiB, magazines up to 256.0 KiB,"
            " purge after 500 ms or above 64.0 MiB, by a thread when idle",
        ),
        (
            {
                "REGION_SIZE": "3M",
                "MAGAZINE_BYTES": "0",
                "PURGE_DELAY": "-1",
                "PURGE_BUDGET": "1536",
                "PURGE_THREAD": "0",
            },
            "regions of 3.0 MiB, magazines up to 0 B,"
            " purge after -1 ms or above 1.5 KiB",
        ),
        (
            {
                "REGION_SIZE": "64GiB",
                "MAGAZINE_BYTES": "16MB",
                "PURGE_DELAY": "0",
                "PURGE_BUDGET": "2t",
                "PURGE_THREAD": "on",
            },
            "regions of 64.0 GiB, magazines up to 16.0 MiB,"
            " purge after 0 ms or above 2.0 TiB, by a thread when idle",
        ),
        (
            # What is malformed changes nothing.
            {
                "REGION_SIZE": "100",
                "MAGAZINE_BYTES": "1G",
                "PURGE_DELAY": "-5",
                "PURGE_BUDGET": "much",
                "PURGE_THREAD": "perhaps",
            },
            "regions of 64.0 MiB, magazines up to 256.0 KiB,"
            " purge after 500 ms or above 64.0 MiB, by a thread when idle",
        ),
    ],
)
def test_verbose(
    variables: dict[str, str], shown: str, library: Path, preloaded: Runner
) -> None:
    """Level 1 names version, build and process; level 2 shows the options as understood."""
    for level in ("1", "2"):
        given = {f"ALLOD_{name}": value for name, value in variables.items()}
        given["ALLOD_VERBOSE"] = level
        result = preloaded.run_well("settings", "nothing", **given)
        said = "".join(
            line
            for line in result.stderr.splitlines(keepends=True)
            if "warning: " not in line
        )
        more = re.escape(f"allod: {shown}\n") + measures_line(library)
        expected = start_line(library) + (more if level == "2" else "")
        assert re.fullmatch(expected, said), describe(result)


LIGHT = "canary, guards, empty, origin, addresses, positions"
BALANCED = LIGHT.replace("canary", "canary, neighbours, zero, written")


@pytest.mark.parametrize(
    ("measures", "shown"),
    [
        ("none", "none"),
        ("light", LIGHT),
        ("balanced", BALANCED),
        (
            "light,neighbours,-origin",
            "canary, neighbours, guards, empty, addresses, positions",
        ),
        ("sweep,zero,quarantine", "zero, quarantine, sweep"),
        # Those that have no effect are none that are in use.
        ("sweep,zero", "zero"),
    ],
)
def test_verbose_names_measures(measures: str, shown: str, hardened: Runner) -> None:
    """Those of the hardened library that are in use, in the order of the documentation."""
    variables = {"ALLOD_HARDENED": measures, "ALLOD_VERBOSE": "2"}
    result = hardened.run_well("settings", "nothing", **variables)
    assert f"allod: measures: {shown}\n" in result.stderr, describe(result)


IN_A_CONTAINER = ("unshare", "--mount", "sh", "-c")


@pytest.mark.parametrize(
    ("variables", "budget"),
    [
        ({}, "16.0 MiB"),
        ({"ALLOD_PURGE_BUDGET": "much"}, "16.0 MiB"),
        ({"ALLOD_PURGE_BUDGET": "8M"}, "8.0 MiB"),
        # The default, but asked for.
        ({"ALLOD_PURGE_BUDGET": "64M"}, "64.0 MiB"),
        ({"ALLOD_PURGE_BUDGET": "1G"}, "1.0 GiB"),
    ],
)
def test_a_container_bounds_the_budget_unless_one_is_set(
    variables: dict[str, str],
    budget: str,
    library: Path,
    settings: Path,
    tmp_path: Path,
) -> None:
    """A sixteenth of the limit, which a folder over that of the control groups tells."""
    outside = {"PATH": os.defpath}
    if run_program([*IN_A_CONTAINER, "true"], outside, tmp_path).returncode != 0:
        pytest.skip("mounts of one's own are not allowed here")
    groups = tmp_path / "groups"
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        file = groups / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{256 << 20}\n")
    given = environment(library) | {"ALLOD_VERBOSE": "2"} | variables
    # Neither the shell nor env is to have the library.
    command = 'mount --bind "$0" /sys/fs/cgroup && exec env "$@"'
    settings_of_env = [f"{name}={value}" for name, value in given.items()]
    result = run_program(
        [*IN_A_CONTAINER, command, groups, *settings_of_env, settings, "nothing"],
        outside,
        tmp_path,
    )
    assert result.returncode == 0, describe(result)
    assert f" or above {budget}, by a thread when idle\n" in result.stderr


def test_help(library: Path, preloaded: Runner) -> None:
    """The list has every option with values, default and meaning, and the program goes on."""
    result = preloaded.run_well("settings", "nothing", ALLOD_HELP="1")
    assert re.fullmatch(list_of_options(library), result.stderr), describe(result)
    by_api = preloaded.run_well("settings", "options_as_text")
    assert by_api.stdout == result.stderr


def test_markdown(library: Path, preloaded: Runner) -> None:
    """The reference's table has the same content."""
    result = preloaded.run_well("settings", "options_as_markdown")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in result.stdout.splitlines()
    ]
    assert rows[0] == ["option", "values", "default", "when", "meaning"]
    text = preloaded.run_well("settings", "options_as_text").stdout
    for row, (name, option) in zip(rows[2:], OPTIONS.items(), strict=True):
        when = "at start" if option.at_start_only else "any time"
        expected = [f"`ALLOD_{name}`", option.values, default_of(name, library), when]
        assert row[:4] == expected
        assert f"\n      {row[4]}\n" in text


def test_options_by_api(preloaded: Runner) -> None:
    """allod_option_set says with an errno value what it thinks of each call."""
    variables = {"ALLOD_SHOW_STATS": "0"}
    case = "options_are_set_or_refused"
    assert preloaded.run_well("settings", case, **variables).stderr == ""


def test_options_by_api_count(tmp_path: Path, preloaded: Runner) -> None:
    """What was set by API is what happens at the end; the environment gave other values."""
    variables = {"ALLOD_SHOW_STATS": "text", "ALLOD_STATS_FILE": "by-environment"}
    case = "options_set_by_api_count"
    assert preloaded.run_well("settings", case, **variables).stderr == ""
    (file,) = tmp_path.iterdir()
    assert file.name == f"by-api-{json.loads(file.read_text())['pid']}.json"


def test_stats_refuse_another_size(preloaded: Runner) -> None:
    """allod_stats_get writes only to a structure of the size that it knows."""
    preloaded.run_well("settings", "stats_refuse_another_size")


def test_environment_before_libc_knows_it(tmp_path: Path, preloaded: Runner) -> None:
    """Options count, once, when the first allocation comes before any constructor."""
    variables = {
        "ALLOD_NOTHING": "1",
        # Longer than what the library reads at a time, and than all of its reads but one.
        "A_LONG_ONE": "x" * 8185 + "ALLOD_VERBOSE=2",
        "ANOTHER_LONG_ONE": "ALLOD_VERBOSE=2" * 5000,
        "ALLOD_REGION_SIZE": "8M",
        "ALLOD_SHOW_STATS": "json",
        "ALLOD_STATS_FILE": "stats-%p.json",
    }
    case = "first_malloc_before_libc"
    result = preloaded.run_well("early", case, **variables)
    assert result.stderr == (
        "allod: warning: unknown option ALLOD_NOTHING is ignored;"
        " ALLOD_HELP=1 lists the options\n"
    )
    (file,) = tmp_path.iterdir()
    stats = json.loads(file.read_text())
    assert file.name == f"stats-{stats['pid']}.json"
    assert stats["reserved"] == 8 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make such a program")
def test_a_program_with_elevated_rights_takes_no_options_from_its_caller(
    build_dir: Path, tmp_path: Path
) -> None:
    """Whoever starts it would choose the files that it writes."""
    source = "#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n"
    program = tmp_path / "program"
    command: list[str | Path] = [
        "cc",
        "-xc",
        "-",
        "-xnone",
        build_dir / "allod.o",
        "-o",
        program,
    ]
    subprocess.run(command, input=source, text=True, check=True)

    def said() -> str:
        variables = {"ALLOD_VERBOSE": "1", "ALLOD_SHOW_STATS": "1"}
        return subprocess.run(
            [program], env=variables, capture_output=True, text=True, check=True
        ).stderr

    assert "serves process" in said()
    shutil.chown(program, 65534)
    program.chmod(0o4755)
    assert said() == ""
