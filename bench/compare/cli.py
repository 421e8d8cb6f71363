"""The command line of the comparison."""

import datetime
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from allod.console import Failure
from allod.files import make_folder

from bench.compare import (
    build,
    machine,
    markdown,
    peers,
    prices,
    publish,
    regressions,
    selection,
    storage,
    targets,
)
from bench.compare.cases import CASES_BY_NAME, GROUPS
from bench.compare.outcome import Outcome
from bench.compare.peers import SUBJECT
from bench.compare.progress import CONSOLE, say
from bench.compare.results import Results
from bench.compare.rounds import CaseResult, Plan
from bench.compare.session import Session
from bench.profilers import cli as profilers
from bench.security import cli as security

QUICK, MODERATE, FULL = "quick", "moderate", "full"
REPEATS = {QUICK: 15, MODERATE: 11, FULL: 25}
# A quick run ends in five minutes: with the case that this ends in, and the report.
QUICK_SECONDS = 250.0
REGRESSION_STATUS = 3
SECURITY = "--security"
PROFILERS = "--profilers"
DOCS = peers.ROOT / "docs"

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    kind: str
    workloads: tuple[str, ...]
    groups: tuple[str, ...]
    given_peers: tuple[str, ...]
    repeats: int | None
    precision: float
    instructions: bool
    may_install: bool
    check: bool
    prices: bool

    def choose_peers(self) -> selection.PeerChoice:
        usual = peers.QUICK if self.kind == QUICK else peers.DEFAULT
        default = prices.PEERS if self.prices else usual
        return selection.choose_peers(self.given_peers, default)


def _measure(request: Request, choice: selection.PeerChoice, folder: Path) -> Results:
    """Builds, measures, and returns what was found; the folder gets the results."""
    quick = request.kind == QUICK
    cases = selection.choose_cases(request.workloads, request.groups, quick=quick)
    if not cases:
        raise click.ClickException("no workload is chosen; see --list")
    allocators, notes = selection.find_peers(
        choice, say, may_install=request.may_install
    )
    if request.check and all(peer.name != SUBJECT for peer in allocators):
        raise click.ClickException(
            "--check needs allod: " + "; ".join(notes or ["not selected"])
        )
    for note in notes:
        say(note)
    found = Results(
        machine.describe(),
        _now(),
        request.kind,
        request.precision,
        allocators,
        notes=notes,
    )
    _session(request, folder).run(cases, found)
    return found


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _session(request: Request, folder: Path) -> Session:
    _make(folder)
    try:
        programs = build.build(may_install=request.may_install)
    except build.BuildError as error:
        raise click.ClickException(str(error)) from error
    quick = request.kind == QUICK
    plan = Plan(
        quick,
        request.repeats or REPEATS[request.kind],
        request.precision,
        seconds=QUICK_SECONDS if quick else None,
    )
    return Session(
        *(programs, plan, request.instructions, request.may_install),
        *(folder / "results.json", CONSOLE),
    )


def _add_rounds(request: Request, found: Results, folder: Path) -> None:
    """Measures the chosen cases again, or all that are there, and adds to what was found."""
    named = request.workloads or request.groups
    quick = found.kind == QUICK
    cases = (
        selection.choose_cases(request.workloads, request.groups, quick=quick)
        if named
        else [result.case for result in found.cases]
    )
    here = machine.describe()
    if not here.is_like(found.machine):
        raise click.ClickException(
            "rounds can be added on the same kind of machine only: these are of "
            f"{found.machine.cpu}, {found.machine.cores} cores, {found.machine.kernel}"
        )
    found.peers = selection.find_again(found.peers)
    session = _session(replace(request, kind=found.kind, instructions=False), folder)
    before = {result.case.name: _rounds_of(result) for result in found.cases}
    found.interrupted = False
    session.add_rounds(cases, found)
    added = [
        f"{result.case.name} {more}"
        for result in found.cases
        if (more := _rounds_of(result) - before.get(result.case.name, 0)) > 0
    ]
    if added:
        found.notes.append(f"rounds added at {_now()}: {', '.join(added)}")


def _rounds_of(result: CaseResult) -> int:
    return max(map(len, result.runs.values()), default=0)


def _make(folder: Path) -> None:
    try:
        make_folder(folder)
    except Failure as failure:
        raise click.BadParameter(str(failure)) from failure


def _load(path: Path) -> Results:
    try:
        return storage.load(path)
    except storage.StorageError as error:
        raise click.ClickException(str(error)) from error


@click.command(
    context_settings={
        "max_content_width": 100,
        "help_option_names": ["-h", "--help"],
    }
)
@click.option(
    SECURITY,
    is_flag=True,
    expose_value=False,
    help="Instead, ask which allocator catches which defect; see --security --help.",
)
@click.option(
    PROFILERS,
    is_flag=True,
    expose_value=False,
    help="Instead, count what heap profilers cost; see --profilers --help.",
)
@click.option(
    "--prices",
    "of_prices",
    is_flag=True,
    help="What hardening costs: the hardened library, its levels and other hardened allocators, "
    f"each beside {SUBJECT}. --publish then writes docs/{prices.PAGE}.",
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="NAME",
    type=click.Choice(list(CASES_BY_NAME)),
    help="Measure this workload; may be repeated. Default: see --list.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    type=click.Choice(GROUPS),
    help=f"Measure the workloads of this group: {', '.join(GROUPS)}.",
)
@click.option(
    "--peer",
    "given_peers",
    multiple=True,
    metavar="NAME[=LIBRARY]",
    help="Only this known peer, or one more as NAME=/PATH/LIBRARY.so; may be repeated. "
    "allod-hardened+MEASURE,MEASURE: the hardened library with these measures alone.",
)
@click.option(
    "--quick", is_flag=True, help="Under five minutes: less work, fewer peers."
)
@click.option(
    "--full", is_flag=True, help="More rounds, and instructions. Takes hours."
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help=f"Measured rounds at most (default {REPEATS[MODERATE]}; "
    f"quick {REPEATS[QUICK]}, full {REPEATS[FULL]}).",
)
@click.option(
    "--precision",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.01,
    show_default=True,
    help="Stop when the 95 % interval of every median is this narrow (half width).",
)
@click.option(
    "--instructions/--no-instructions",
    default=None,
    help="Count instructions in a run of their own (--full does).",
)
@click.option(
    "--compare",
    "old",
    type=_file,
    metavar="RESULTS.json",
    help="Say what changed since these results.",
)
@click.option(
    "--fail-on-regression",
    "percent",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="With --compare: status 3 if Allod is significantly worse by more than this.",
)
@click.option(
    "--from",
    "source",
    type=_file,
    metavar="RESULTS.json",
    help="Measure nothing, make the report of these results again.",
)
@click.option(
    "--more",
    "earlier",
    type=_file,
    metavar="RESULTS.json",
    help="Add rounds to these results, with the same allocators on the same machine.",
)
@click.option(
    "--publish",
    "to_publish",
    is_flag=True,
    help="With --full or --from: write docs/results.md and its pictures.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for report.html, report.md, results.json and runs.csv.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.option(
    "--check", is_flag=True, help="Compare with the project's targets (needs allod)."
)
@click.option(
    "--no-install", is_flag=True, help="Do not install or build what is missing."
)
@click.option(
    "--list", "only_list", is_flag=True, help="List workloads and peers, and stop."
)
def command(
    of_prices: bool,
    workloads: tuple[str, ...],
    groups: tuple[str, ...],
    given_peers: tuple[str, ...],
    quick: bool,
    full: bool,
    repeats: int | None,
    precision: float,
    instructions: bool | None,
    old: Path | None,
    percent: float | None,
    source: Path | None,
    earlier: Path | None,
    to_publish: bool,
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
    if quick and full:
        raise click.UsageError("--quick and --full exclude each other")
    if percent is not None and old is None:
        raise click.UsageError("--fail-on-regression needs --compare")
    if to_publish and not (of_prices or full or source or earlier):
        raise click.UsageError(
            "--publish needs --full, or --from or --more with such results"
        )
    if earlier is not None and (quick or full or source is not None or given_peers):
        raise click.UsageError(
            "--more goes with the kind and the allocators of its results: "
            "without --quick, --full, --from and --peer"
        )
    if of_prices and check:
        raise click.UsageError("--prices does not go with --check")
    if of_prices and not (workloads or groups or earlier):
        groups = prices.GROUPS
    request = Request(
        QUICK if quick else FULL if full else MODERATE,
        *(workloads, groups, given_peers, repeats, precision),
        instructions=full if instructions is None else instructions,
        may_install=not no_install,
        check=check,
        prices=of_prices,
    )
    choice = request.choose_peers()
    if only_list:
        click.echo(selection.describe(choice, say))
        return
    before = _load(old) if old is not None else None
    found, folder = _results(request, choice, source, earlier, out)
    outcome = Outcome(
        found,
        targets.check(found) if check else [],
        regressions.compare(found, before) if before is not None else None,
        prices.overview if of_prices else markdown.overview,
    )
    _hand_over(outcome, folder, as_json=as_json)
    if to_publish:
        _publish(found, of_prices)
    worse = outcome.regressions(percent) if percent is not None else []
    for line in worse:
        say(line)
    if found.interrupted:
        raise click.exceptions.Exit(130)
    if found.failed:
        raise click.exceptions.Exit(1)
    if worse:
        raise click.exceptions.Exit(REGRESSION_STATUS)


def _results(
    request: Request,
    choice: selection.PeerChoice,
    source: Path | None,
    earlier: Path | None,
    out: Path | None,
) -> tuple[Results, Path]:
    """What was measured before, is measured further or anew, and the folder for it."""
    if source is not None:
        folder = out or source.parent
        found = _load(source)
        _make(folder)
    elif earlier is not None:
        folder = out or earlier.parent
        found = _load(earlier)
        _add_rounds(request, found, folder)
    else:
        now = datetime.datetime.now()
        folder = out or peers.ROOT / "build" / "bench" / now.strftime("%Y%m%d-%H%M%S")
        found = _measure(request, choice, folder)
    return found, folder


def _hand_over(outcome: Outcome, folder: Path, *, as_json: bool) -> None:
    """Writes the files and prints the results."""
    try:
        outcome.write(folder)
        reason = ""
        say(f"written to {folder}")
    except Failure as failure:
        reason = f"{failure}; the results are on standard output"
    # What took hours to measure is not lost with a full disk.
    if as_json or reason:
        click.echo(storage.to_json(outcome.found), nl=False)
    else:
        outcome.show()
    if reason:
        raise click.ClickException(reason)


def _publish(found: Results, of_prices: bool) -> None:
    try:
        written = (
            [prices.write(found, DOCS)] if of_prices else publish.write(found, DOCS)
        )
    except publish.PublishError as error:
        raise click.ClickException(str(error)) from error
    say("published: " + ", ".join(path.name for path in written))


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Whoever tells us to end gets what is done, as with Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str] | None = None, program: str = "allod bench") -> int:
    """Runs the comparison, or what is asked for instead, and returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = command
    for option, other in {
        SECURITY: security.command,
        PROFILERS: profilers.command,
    }.items():
        if option in given:
            given.remove(option)
            chosen, program = other, f"{program} {option}"
            break
    try:
        with _terminated_as_interrupted():
            outcome = chosen.main(
                args=given,
                prog_name=program,
                standalone_mode=False,
            )
    except Failure as failure:
        say(f"Error: {failure}")
        return failure.status
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    return outcome if isinstance(outcome, int) else 0
