"""The command line of the comparison."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from bench.compare import (
    build,
    machine,
    peers,
    plot,
    report,
    results,
    runner,
    syscalls,
    targets,
)
from bench.compare.cases import CASES, CASES_BY_NAME, TRACED_CASE, Case
from bench.compare.peers import KNOWN, SUBJECT, Peer
from bench.compare.results import Results

QUICK_REPEATS = 3
FULL_REPEATS = 25

_console = Console(stderr=True)


def _say(text: str) -> None:
    _console.print(text, markup=False, highlight=False)


@dataclass(frozen=True)
class _Selection:
    """Peers as the command line names them."""

    known: tuple[str, ...]
    extra: dict[str, Path]


def _select_peers(given: Sequence[str]) -> _Selection:
    known: list[str] = []
    extra: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if equals and (not name or not path):
            raise click.BadParameter(f"'{text}' should be NAME=/PATH/LIBRARY.so")
        if equals and (name in KNOWN or name in extra):
            raise click.BadParameter(f"the name '{name}' is taken")
        if not equals and name not in KNOWN:
            raise click.BadParameter(
                f"unknown peer '{name}'; known: {', '.join(KNOWN)}, "
                "or NAME=/PATH/LIBRARY.so"
            )
        if equals:
            extra[name] = Path(path)
        elif name not in known:
            known.append(name)
    return _Selection(tuple(known or KNOWN), extra)


def _find_peers(
    selection: _Selection, may_install: bool
) -> tuple[list[Peer], list[str]]:
    """The peers that can be had, and a note on each that cannot."""
    if may_install:
        peers.install_missing(selection.known, _say)
    found: list[Peer] = []
    notes: list[str] = []
    for name in selection.known:
        try:
            found.append(peers.find(name))
        except peers.PeerError as error:
            notes.append(f"{name} is left out: {error}")
    for name, path in selection.extra.items():
        try:
            found.append(peers.from_file(name, path))
        except peers.PeerError as error:
            raise click.BadParameter(f"{name}: {error}") from error
    if not found:
        raise click.ClickException("no allocator to measure: " + "; ".join(notes))
    return found, notes


def _list(selection: _Selection) -> None:
    click.echo("workloads:")
    for case in CASES:
        click.echo(
            f"  {case.name:15} {case.about}{'' if case.by_default else ' (when named)'}"
        )
    found, notes = _find_peers(selection, may_install=False)
    click.echo("peers:")
    for peer in found:
        click.echo(f"  {peer.name:15} {peer.version}  {peer.library or ''}")
    for note in notes:
        click.echo(f"  {note}")


def _measure(
    programs: Path,
    cases: Sequence[Case],
    plan: runner.Plan,
    found: Results,
    trace: bool,
) -> None:
    """Measures into ``found``; Ctrl-C ends it and keeps what is there."""
    progress = Progress(
        TextColumn("{task.description:15}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
        console=_console,
        disable=not _console.is_terminal,
        # Nothing of ours may run beside a workload.
        auto_refresh=False,
    )
    task = progress.add_task("", total=len(cases) * len(found.peers) * plan.rounds)

    def advance(steps: int) -> None:
        progress.advance(task, steps)
        progress.refresh()

    try:
        with progress:
            for case in cases:
                progress.update(task, description=case.name)
                result = runner.CaseResult(case)
                found.cases.append(result)
                runner.measure(programs, result, found.peers, plan, advance)
                if not _console.is_terminal:
                    _say(f"{case.name}: {sum(map(len, result.runs.values()))} runs")
                for name, reason in result.failures.items():
                    _say(f"{case.name}: {name} FAILED: {reason}")
            if trace:
                _trace(programs, found)
    except KeyboardInterrupt:
        found.interrupted = True
        _say("interrupted; keeping what is done")


def _trace(programs: Path, found: Results) -> None:
    for peer in found.peers:
        try:
            found.system_calls.append(syscalls.count(programs, peer))
        except runner.RunError as error:
            found.notes.append(
                f"system calls of {peer.name} could not be counted: {error}"
            )


def _write(found: Results, checks: Sequence[targets.Check], folder: Path) -> None:
    (folder / "report.md").write_text(report.render(found, checks))
    (folder / "results.json").write_text(results.to_json(found))
    results.write_csv(found, folder / "runs.csv")
    plot.draw(found, folder / "plot.png")


def _show(found: Results, checks: Sequence[targets.Check]) -> None:
    lines = [
        *found.notes,
        "",
        *report.overview(found),
        *(report.checks(checks) if checks else []),
    ]
    console = Console()
    if console.is_terminal:
        console.print(Markdown("\n".join(lines)))
    else:
        click.echo("\n".join(lines))


def _make_folder(out: Path | None, now: datetime.datetime) -> Path:
    folder = out or peers.ROOT / "build" / "bench" / now.strftime("%Y%m%d-%H%M%S")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"cannot make {folder}: {error.strerror}") from error
    return folder


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="NAME",
    type=click.Choice(list(CASES_BY_NAME)),
    help="Measure this workload; may be repeated. Default: see --list.",
)
@click.option(
    "--peer",
    "given_peers",
    multiple=True,
    metavar="NAME[=LIBRARY]",
    help="Only this known peer, or one more as NAME=/PATH/LIBRARY.so; may be repeated.",
)
@click.option(
    "--quick", is_flag=True, help=f"Shorter workloads, {QUICK_REPEATS} repeats."
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help=f"Measured rounds at most (default {FULL_REPEATS}).",
)
@click.option(
    "--precision",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.01,
    show_default=True,
    help="Stop when the 95 % interval of every median is this narrow (half width).",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for report.md, results.json, runs.csv and plot.png.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.option(
    "--check", is_flag=True, help="Compare with the project's targets (needs allod)."
)
@click.option(
    "--no-install", is_flag=True, help="Do not install missing Debian packages."
)
@click.option(
    "--list", "only_list", is_flag=True, help="List workloads and peers, and stop."
)
def command(
    workloads: tuple[str, ...],
    given_peers: tuple[str, ...],
    quick: bool,
    repeats: int | None,
    precision: float,
    out: Path | None,
    as_json: bool,
    check: bool,
    no_install: bool,
    only_list: bool,
) -> None:
    """Measure Allod beside its peers, in interleaved runs.

    Ends with status 1 if an allocator failed or a checksum differed. A missed
    target does not change the status.
    """
    selection = _select_peers(given_peers)
    if only_list:
        _list(selection)
        return
    now = datetime.datetime.now().astimezone()
    allocators, notes = _find_peers(selection, may_install=not no_install)
    if check and all(peer.name != SUBJECT for peer in allocators):
        raise click.ClickException(
            "--check needs allod: " + "; ".join(notes or ["not selected"])
        )
    for note in notes:
        _say(note)
    cases = [
        case
        for case in CASES
        if case.name in workloads or (not workloads and case.by_default)
    ]
    folder = _make_folder(out, now)
    try:
        programs = build.build(_say, may_install=not no_install)
    except build.BuildError as error:
        raise click.ClickException(str(error)) from error
    trace = any(case.name == TRACED_CASE for case in cases)
    if trace and not syscalls.prepare(_say, may_install=not no_install):
        notes.append("system calls are not counted: strace is missing")
        trace = False

    plan = runner.Plan(
        quick, repeats or (QUICK_REPEATS if quick else FULL_REPEATS), precision
    )
    found = Results(
        machine.describe(),
        now.isoformat(timespec="seconds"),
        quick,
        precision,
        allocators,
    )
    found.notes += notes
    _measure(programs, cases, plan, found, trace)
    checks = targets.check(found) if check else []
    _write(found, checks, folder)
    if as_json:
        click.echo(results.to_json(found))
    else:
        _show(found, checks)
    _say(f"written to {folder}")
    if found.interrupted:
        raise click.exceptions.Exit(130)
    if found.failed:
        raise click.exceptions.Exit(1)


def main(arguments: Sequence[str] | None = None, program: str = "allod bench") -> int:
    """Runs the comparison and returns the exit status."""
    try:
        outcome = command.main(
            args=None if arguments is None else list(arguments),
            prog_name=program,
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    return outcome if isinstance(outcome, int) else 0
