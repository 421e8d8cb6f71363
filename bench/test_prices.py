"""What hardening costs is told as it was measured."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.compare import cli, prices, storage
from bench.compare.peers import SUBJECT
from bench.compare.publish import PublishError
from bench.compare.results import Results
from bench.samples import a_case, some_results

LIGHT = f"{prices.HARDENED}+light"


def measured() -> Results:
    """Two programs and a workload, in three rounds; the second round was slow for all."""
    every: dict[str, Sequence[float]] = {
        SUBJECT: (10.0, 20.0, 10.0),
        prices.HARDENED: (12.0, 24.0, 12.0),
    }
    fast: dict[str, Sequence[float]] = {
        SUBJECT: (10.0, 20.0, 10.0),
        prices.HARDENED: (30.0, 60.0, 30.0),
    }
    peaks = {SUBJECT: 1000, prices.HARDENED: 1100}
    return some_results(
        a_case("redis", every, peaks),
        a_case("lua", {**fast, LIGHT: (10.0, 20.0, 10.0)}, peaks),
        a_case("tree", fast),
    )


def texts(lines: list[str], name: str) -> list[list[str]]:
    """The cells of each row of an allocator."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in rows if row and row[0] == name]


def test_means_are_against_the_default_library_in_the_same_round() -> None:
    lines = prices.overview(measured())
    titles = [line for line in lines if line.startswith("#")]
    assert titles == ["## Real programs", "## Small objects"]
    programs, workloads = texts(lines, prices.HARDENED)
    # sqrt(1.2 * 3)
    assert programs == [
        *(prices.HARDENED, "1.897", "0.0%", "3.00 (lua)"),
        *("1.100", "0.0%", "1.10 (redis)", "2 of 2"),
    ]
    assert workloads[1] == "3.000"
    assert [row[1] for row in texts(lines, SUBJECT)] == ["1.000", "1.000"]
    assert texts(lines, LIGHT)[0][-1] == "1 of 2"


def test_every_case_is_on_the_page() -> None:
    found = measured()
    found.cases[0].failures["scudo"] = "ended with status 1"
    found.peers.append(found.peers[0].__class__("scudo", None, "any"))
    page = prices.render(found)
    assert "| lua | 3.00 ~ | 1.00 ~ | – |" in page
    assert "| redis | 1.20 ~ | – | failed |" in page
    assert "| redis | 1.10 |" in page
    assert "nan" not in page


def test_prices_without_a_level_are_not_published(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="balanced"):
        prices.write(measured(), tmp_path)


def test_the_command_shows_and_publishes_stored_prices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (SUBJECT, *prices.LEVELS)
    found = some_results(a_case("redis", dict.fromkeys(names, (10.0,))))
    storage.save(found, tmp_path / "results.json")
    monkeypatch.setattr(cli, "DOCS", tmp_path)
    arguments = ["--prices", "--from", str(tmp_path / "results.json")]
    assert cli.main(arguments) == 0
    assert "1.000" in capsys.readouterr().out
    assert not (tmp_path / prices.PAGE).exists()
    assert cli.main([*arguments, "--publish"]) == 0
    assert "What hardening costs" in (tmp_path / prices.PAGE).read_text()


def test_prices_are_no_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--no-install", "--prices", "--check"]) == 2
    assert "--prices does not go with --check" in capsys.readouterr().err
