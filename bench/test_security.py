"""The security suite: the judge is right, and Allod does what it is expected to do."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from bench import fakes, tiny
from bench.compare import build, cli, machine, peers
from bench.compare.peers import Peer
from bench.samples import Page
from bench.security import (
    attacks,
    cases,
    distances,
    expected,
    judge,
    report,
    suite,
    trial,
)
from bench.security import cli as security
from bench.security.cases import ACCESS, CALL, Case
from bench.security.judge import Outcome, Verdict
from bench.security.suite import Findings


@pytest.fixture(scope="session")
def defects() -> Path:
    """The program that has all defects."""
    return build.build_defects(may_install=True) / "defects"


@pytest.fixture(scope="session")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allocator that checks nothing."""
    return tiny.compile_library(tmp_path_factory.mktemp("careless"), fakes.CARELESS)


@pytest.fixture(scope="session")
def careful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allocator that checks everything."""
    return tiny.compile_library(tmp_path_factory.mktemp("careful"), fakes.CAREFUL)


def outcome_under(
    library: Path, program: Path, case: Case, **variables: int
) -> Verdict:
    given = tuple((name, str(value)) for name, value in variables.items())
    return trial.run(program, case, Peer("fake", library, "1", given), limit=60)


# The judge.

BEGIN = "@@from /lib/libc.so.6\n"
BEFORE = f"{BEGIN}@@before\n"
AFTER = f"{BEFORE}@@after\n"
DONE = f"{AFTER}@@done\n"
HARMED = f"{AFTER}@@effect memory was changed\n"
ABORT, KILLED, FAULT = -6, -9, -11


class Account(NamedTuple):
    """What a program said, how it ended, and what that should be called."""

    said: str
    status: int | None
    wanted: str
    kind: str = CALL


ACCOUNTS = [
    Account(BEFORE, ABORT, "caught"),
    Account(BEFORE, 1, "caught"),
    Account(BEFORE, FAULT, "caught", ACCESS),
    Account(BEFORE, FAULT, "crashed"),
    Account(AFTER, ABORT, "late"),
    Account(AFTER, FAULT, "crashed", ACCESS),
    Account(HARMED, ABORT, "late*"),
    Account(HARMED, FAULT, "crashed"),
    Account(DONE, ABORT, "at exit"),
    Account(f"{HARMED}@@done\n", ABORT, "at exit*"),
    Account(DONE, FAULT, "crashed"),
    Account(DONE, 0, "harmless"),
    Account(f"{HARMED}@@done\n", 0, "missed"),
    # Said, and the program went on.
    Account(f"{BEFORE}double free!\n@@after\n@@done\n", 0, "caught"),
    Account(f"{AFTER}double free!\n@@done\n", 0, "late"),
    Account(f"{DONE}double free!\n", 0, "at exit"),
    Account(f"{HARMED}too late\n@@done\n", 0, "late*"),
    Account(f"welcome\n{DONE}", 0, "harmless"),
    Account(f"{BEFORE}@@out-of-memory\n", 3, "crashed"),
    # Nobody's check: the program itself gave up, or the system ended it.
    Account(BEFORE, 3, "failed"),
    Account(AFTER, 3, "failed"),
    Account(BEFORE, KILLED, "failed"),
    Account(DONE, KILLED, "failed", ACCESS),
    Account(AFTER, None, "hung"),
    Account(BEGIN, ABORT, "failed"),
    Account("", None, "failed"),
    Account("@@from /elsewhere.so\n@@before\n", ABORT, "failed"),
]


@pytest.mark.parametrize("account", ACCOUNTS, ids=str)
def test_the_judge_names_what_happened(account: Account) -> None:
    verdict = judge.judge(account.said, account.status, account.kind, None)
    assert verdict.text == account.wanted


def test_the_judge_keeps_what_was_said_about_the_defect() -> None:
    said = f"welcome\n{BEFORE}free(): twice\nsecond line\n"
    verdict = judge.judge(said, ABORT, CALL, None)
    assert (verdict.ended, verdict.message) == ("SIGABRT", "free(): twice second line")
    verdict = judge.judge(f"{HARMED}@@done\n", 0, CALL, None)
    assert (verdict.ended, verdict.harmed) == ("exit status 0", "memory was changed")


def test_the_worst_of_several_runs_counts() -> None:
    verdicts = [
        Verdict(outcome, harmed, "", "")
        for outcome in Outcome
        for harmed in ("", "memory was changed")
    ]
    texts = [judge.worst(verdicts[:count]).text for count in range(1, len(verdicts))]
    places = list(map(judge.ORDER.index, texts))
    assert places == sorted(places)
    assert {verdict.text for verdict in verdicts} == {*judge.ORDER}


# Allocators of which is known what they do.


def some(program: Path, *keys: str) -> list[Case]:
    found = [
        case
        for case in cases.load(program)
        if case.key in keys
        or f"{case.family}: {case.name}" in keys
        or case.family in keys
    ]
    assert found
    return found


BAD = frozenset({"missed", "crashed"})
UNDER_CARELESS = {
    "double free: at once": BAD,
    "double free: delayed": BAD,
    "double free: after reuse": BAD,
    "double free: first another thread": BAD,
    "double free: by realloc": BAD,
    "invalid free: far": {"crashed"},
    "invalid free: forged": BAD,
    "overflow: 32 bytes, store": BAD,
    "overflow: 32 bytes, memcpy": BAD,
    "underflow: 32 bytes, store": BAD,
    "write after free": BAD,
    "stale data": {"missed"},
    "uninitialised read": {"missed"},
    "reuse: malloc": {"missed"},
    "impossible size: malloc, SIZE_MAX": {"harmless"},
    "zero size": {"missed"},
    "wrong size": {"harmless"},
    "mismatched delete: new by free": {"harmless"},
}


@pytest.mark.parametrize("key", UNDER_CARELESS)
def test_an_allocator_without_checks_misses(
    key: str, defects: Path, careless: Path
) -> None:
    for case in some(defects, key):
        verdict = outcome_under(careless, defects, case)
        assert verdict.text in UNDER_CARELESS[key], (case.key, verdict)


UNDER_CAREFUL = {
    "double free": "caught",
    "invalid free": "caught",
    "overflow": "caught",
    "underflow": "caught",
    "underflow: 1 byte, store, large": "caught",
    "write after free": "caught",
    "stale data": "caught",
    "uninitialised read": "harmless",
    "reuse": "harmless",
    "impossible size: calloc, product wraps": "harmless",
    "zero size": "caught",
    "executable heap": "caught",
}


@pytest.mark.parametrize("key", UNDER_CAREFUL)
def test_an_allocator_that_checks_all_catches(
    key: str, defects: Path, careful: Path
) -> None:
    for case in some(defects, key):
        if case.size == "small" and ("flow" in case.family or "region" in case.name):
            continue  # More blocks than it can have.
        verdict = outcome_under(careful, defects, case)
        assert verdict.text == UNDER_CAREFUL[key], (case.key, verdict)


def test_a_fault_of_the_allocator_is_never_a_success(
    defects: Path, careless: Path
) -> None:
    (case,) = some(defects, "double free: interleaved, small")
    texts = [
        outcome_under(careless, defects, case, FAULT_AT=number).text
        for number in range(1, 60, 2)
    ]
    assert {*texts} == {"failed", "crashed"}
    assert texts == sorted(texts, reverse=True)


def test_when_an_allocator_stops_the_program_decides(
    defects: Path, careless: Path
) -> None:
    (case,) = some(defects, "wrong size: more, small")
    texts = [
        outcome_under(careless, defects, case, ABORT_AT=number).text
        for number in range(1, 60)
    ]
    # Each of these one after the other, and no other.
    assert list(dict.fromkeys(texts)) == ["failed", "caught", "late"]
    assert texts.count("caught") == 1
    at = texts.index("caught") + 1
    assert outcome_under(careless, defects, case, SAY_AT=at).text == "caught"
    assert outcome_under(careless, defects, case, SAY_AT=at + 1).text == "late"
    assert outcome_under(careless, defects, case, SAY_AT=at - 1).text == "harmless"
    assert outcome_under(careless, defects, case, ABORT_AT_EXIT=1).text == "at exit"
    assert outcome_under(careless, defects, case, ABORT_AT_START=1).text == "failed"
    assert outcome_under(careless, defects, case, SHOUT_AT=at).text == "hung"


def test_a_program_that_hangs_is_ended(defects: Path, careless: Path) -> None:
    (case,) = some(defects, "wrong size: more, small")
    peer = Peer("fake", careless, "1", (("HANG_AT", "40"),))
    # In which it gets where it hangs.
    verdict = trial.run(defects, case, peer, limit=5)
    assert (verdict.text, verdict.ended) == ("hung", "ended after the time limit")


def test_another_allocator_than_the_wanted_one_is_found_out(defects: Path) -> None:
    (case,) = some(defects, "wrong size: more, small")
    verdict = outcome_under(Path("/nowhere/libnone.so"), defects, case)
    assert verdict.text == "failed"


# What Allod does.


@pytest.fixture(scope="module")
def ours(defects: Path) -> Findings:
    """Every case under every library of ours that is built."""
    found = [peers.find(name) for name in peers.OURS_SECURED if _is_built(name)]
    every = Findings(machine.describe(), "now", 1, found, cases.load(defects))
    suite.run(defects, every, print)
    return every


def _is_built(name: str) -> bool:
    try:
        peers.find(name)
    except peers.PeerError:
        return False
    return True


def families() -> list[str]:
    said = expected.load()["allod"]
    return list(dict.fromkeys(key.partition(":")[0] for key in said))


@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("library", peers.OURS_SECURED)
def test_allod_does_what_is_expected(library: str, family: str, ours: Findings) -> None:
    if library not in ours.verdicts:
        pytest.skip(f"{library} is not built")
    said = expected.load()[library]
    wrong = {
        case.key: (verdict, "wanted", said_of)
        for case in ours.families[family]
        if (verdict := ours.of(library, case)).text
        not in (said_of := expected.wanted(said, case))
    }
    assert not wrong


def test_expectations_are_of_cases_that_exist(ours: Findings) -> None:
    known = {
        key
        for case in ours.cases
        for key in (case.key, f"{case.family}: {case.name}", case.family)
    }
    for library, said in expected.load().items():
        assert library in peers.OURS_SECURED
        assert {*said} <= known
        texts = {text for each in said.values() for text in each.split(" or ")}
        assert texts <= {*judge.ORDER}


def test_a_case_without_expectation_is_an_error() -> None:
    case = Case("new family", "defect", "", CALL, "")
    with pytest.raises(expected.ExpectationError, match="new family: defect"):
        expected.wanted({}, case)


# Generated cases.


def test_generated_cases_differ_and_cover_each_kind() -> None:
    every = [*distances.generate()]
    assert len({case.key for case in every}) == len(every)
    for size in map(str, distances.BYTES):
        of_size = [case for case in every if case.size == size]
        assert {case.family for case in of_size} == {*distances.ABOUT}
        assert {case.number for case in of_size} >= {*distances.DISTANCES}


# A stray write far away, or beside a large block, may hit large memory that is handed out again.
NEAR = 4096
SMALL = 1000
# Each so many cases; primes, so that all sizes, states, ways and distances come.
STEPS = {distances.WRITE: 17, distances.LATE_WRITE: 7, distances.DELETE: 5}


def some_generated() -> list[Case]:
    near = [
        case
        for case in distances.generate()
        if int(case.size) <= SMALL and abs(case.number) <= NEAR
    ]
    return [
        case
        for family, step in STEPS.items()
        for case in [each for each in near if each.family == family][::step]
    ]


@pytest.fixture(scope="module")
def strays(defects: Path) -> Findings:
    """Some generated cases under the hardened library, alone and with checked copies."""
    names = [name for name in HARDENED if _is_built(name)]
    chosen = some_generated()
    found = [peers.find(name) for name in names]
    some = Findings(machine.describe(), "now", 1, found, chosen)
    suite.run(defects.with_name("strays"), some, print)
    return some


HARDENED = ("allod-hardened", peers.WITH_COPIES)


@pytest.mark.parametrize("family", distances.ABOUT)
@pytest.mark.parametrize("library", HARDENED)
def test_what_hits_no_memory_in_use_is_noticed(
    library: str, family: str, strays: Findings
) -> None:
    if library not in strays.verdicts:
        pytest.skip(f"{library} is not built")
    unnoticed = [
        (case.key, strays.of(library, case))
        for case in strays.families[family]
        if not distances.is_noticed(strays, library, case)
        and not distances.hits_the_program(strays, library, case)
    ]
    assert not unnoticed


def test_the_table_of_distances_counts_what_can_be_known() -> None:
    texts = ["caught", "at exit", "missed", "harmless", "missed", "missed"]
    every = [case for case in distances.generate() if case.family == distances.WRITE][
        : len(texts) * len(distances.WAYS) : len(distances.WAYS)
    ]
    found = Findings(
        machine.describe(), "now", 1, [Peer("some", None, "1")], [*every], []
    )
    found.verdicts["some"] = {
        case.key: [Verdict(Outcome(text), "", "", "")]
        for case, text in zip(every, texts, strict=True)
    }
    (row,) = distances.summary(found).rows
    assert [cell.text for cell in row] == ["some", "2/3 + 3"]
    table = distances.table(found, found.peers[0], distances.WRITE)
    assert [cell.text for cell in table.rows[0]] == ["8", "2/3 + 1", "– + 2"]
    assert [cell.strong for cell in table.rows[0]] == [False, True, False]
    assert "2/3 + 3" in report.render_distances(found)


# Attacks.


def test_a_chance_is_the_share_of_attempts_that_won() -> None:
    one, other = [*attacks.generate()][:2]
    won, lost = (
        Verdict(Outcome.LATE, "called", "", ""),
        Verdict(Outcome.CAUGHT, "", "", ""),
    )
    some = [Peer("some", None, "1"), Peer("glibc", None, "2")]
    found = Findings(machine.describe(), "now", 4, some, [one, other], [])
    found.verdicts["some"] = {one.key: [won, lost, lost, lost], other.key: [won] * 4}
    found.verdicts["glibc"] = {one.key: [won] * 4, other.key: [lost] * 4}
    summary = attacks.summary(found)
    assert summary.header[-1] == "wins with the 1 others"
    rows = [[cell.text for cell in row] for row in summary.rows]
    assert rows == [
        ["some", "25 %", "75 %", "0", "100 %"],
        ["glibc", "100 %", "0 %", "0", "0 %"],
    ]
    assert [cell.text for cell in attacks.table(found).rows[1]][1:] == ["100 %", "0 %"]
    assert "How often attacks succeed" in report.render_attacks(found)


def test_attacks_succeed_on_glibc_and_are_told(
    tmp_path: Path, defects: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each kind wins with some size."""
    arguments = ["--security", "--attacks", "--peer", "glibc", "--repeats", "2"]
    assert cli.main([*arguments, "--no-install", "--out", str(tmp_path)]) == 0
    assert "| glibc | **100 %** |" in capsys.readouterr().out
    again = ["--security", "--attacks", "--from", str(tmp_path / "security.json")]
    assert cli.main([*again, "--out", str(tmp_path / "again")]) == 0
    assert "Every attack" in (tmp_path / "again" / "attacks.md").read_text()
    every = json.loads((tmp_path / "security.json").read_text())
    harmed = {
        case.family
        for case in attacks.generate()
        if all(verdict["harmed"] for verdict in every["verdicts"]["glibc"][case.key])
    }
    assert harmed == {*attacks.ABOUT}


# The report.


def made_up(texts: Mapping[str, Mapping[str, Outcome]]) -> Findings:
    """Findings with one verdict for each allocator and case."""
    names = dict.fromkeys(key for of in texts.values() for key in of)
    every = [Case("a <family>", name, "", CALL, f"what {name} does") for name in names]
    found = Findings(
        machine.describe(),
        "2026-01-01",
        1,
        [Peer(name, None, "1.0") for name in texts],
        every,
        ["one | note"],
    )
    for name, of in texts.items():
        found.verdicts[name] = {
            case.key: [Verdict(of[case.name], "", "SIGABRT", "a <message> | of it")]
            for case in every
        }
    return found


SAMPLE = {
    "poor": {"first": Outcome.MISSED, "second": Outcome.CRASHED},
    "good": {"first": Outcome.CAUGHT, "second": Outcome.HARMLESS},
    "fair": {"first": Outcome.LATE, "second": Outcome.MISSED},
}


def test_findings_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = made_up(SAMPLE)
    suite.save(found, tmp_path / "security.json")
    assert suite.load(tmp_path / "security.json") == found
    (tmp_path / "other.json").write_text('{"format": 99}')
    with pytest.raises(suite.FindingsError, match="format 99"):
        suite.load(tmp_path / "other.json")


def test_the_report_counts_and_orders_by_success() -> None:
    text = report.render_markdown(made_up(SAMPLE))
    rows = [
        line for line in text.splitlines() if re.match(r"\| (poor|good|fair) ", line)
    ]
    assert rows[0].startswith("| good | 1 | 1 | 0 |")
    assert rows[1].startswith("| fair | 0 | 0 | 1 |")
    assert rows[2].startswith("| poor | 0 | 0 | 0 | 0 | 1 | 0 | 1 |")
    assert "| first | caught | late | **missed** |" in text


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = report.render_html(made_up(SAMPLE))
    page = Page(text)
    assert not page.open
    assert not page.outside
    assert "a &lt;message&gt; | of it" in text
    assert "a <family>" not in text


# The command line.


def test_the_suite_runs_from_the_command_line(
    tmp_path: Path, defects: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--security", "--peer", "glibc", "--family", "executable heap"]
    arguments += ["--no-install", "--out", str(tmp_path / "out")]
    assert cli.main(arguments) == 0
    assert "| glibc | 3 |" in capsys.readouterr().out
    found = suite.load(tmp_path / "out" / "security.json")
    assert found.repeats == security.REPEATS
    assert [len(each) for each in found.verdicts["glibc"].values()] == [3, 3, 3]
    assert (tmp_path / "out" / "security.html").is_file()
    again = ["--security", "--from", str(tmp_path / "out" / "security.json"), "--json"]
    assert cli.main(again) == 0
    assert '"format": 1' in capsys.readouterr().out


def test_generated_cases_run_from_the_command_line(
    tmp_path: Path, defects: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--security", "--distances", "--family", distances.DELETE]
    arguments += ["--peer", "glibc", "--repeats", "1", "--no-install"]
    assert cli.main([*arguments, "--out", str(tmp_path)]) == 0
    number = len(distances.BYTES) * 2 * len(distances.DIFFERENCES)
    assert f"| glibc | **0/{number}** |" in capsys.readouterr().out
    assert "glibc: sized delete" in (tmp_path / "distances.md").read_text()
    assert suite.load(tmp_path / "security.json").cases[0].family == distances.DELETE


def test_wrong_arguments_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--security", "--family", "none", "--peer", "glibc"]) == 2
    assert "unknown family 'none'; known: double free" in capsys.readouterr().err
    both = ["--security", "--distances", "--attacks"]
    assert cli.main(both) == 2
    assert "choose one" in capsys.readouterr().err
    assert cli.main(["--security", "--publish", "--peer", "glibc"]) == 2
    assert "--publish needs all" in capsys.readouterr().err


def test_a_program_that_does_not_come_to_its_defect_is_a_failure(
    tmp_path: Path, defects: Path, careless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        peers,
        "from_file",
        lambda name, path: Peer(name, path, "1", (("ABORT_AT_START", "1"),)),
    )
    arguments = ["--security", "--peer", f"broken={careless}", "--repeats", "1"]
    arguments += ["--peer", "glibc", "--no-install"]
    arguments += ["--family", "zero size", "--out", str(tmp_path)]
    assert cli.main(arguments) == 1
