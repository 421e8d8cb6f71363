"""The command line of the security suite: ``./allod bench --security``."""

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
from allod.console import Failure
from allod.files import make_folder, write_whole
from rich.console import Console
from rich.markdown import Markdown

from bench.compare import build, machine, peers, selection
from bench.compare.peers import ROOT
from bench.compare.progress import say
from bench.security import attacks, cases, distances, report, suite
from bench.security.suite import Findings

REPEATS = 3
PAGE = ROOT / "docs" / "security-results.md"
DISTANCES_PAGE = ROOT / "docs" / "security-distances.md"
ATTACKS_PAGE = ROOT / "docs" / "security-attacks.md"


@dataclass(frozen=True)
class Suite:
    """A program, its cases, and the page that they make."""

    program: str
    repeats: int
    page: Path
    header: str
    # Markdown: for the terminal, and the page.
    summary: Callable[[Findings], list[str]]
    render: Callable[[Findings], str]
    # Families, and all cases; None: those that the program lists.
    about: Mapping[str, str] = field(default_factory=dict)
    generate: Callable[[], Iterator[cases.Case]] | None = None


DEFECTS = Suite(
    "defects", REPEATS, PAGE, report.HEADER, report.summary, report.render_markdown
)
DISTANCES = Suite(
    "strays",
    REPEATS,
    DISTANCES_PAGE,
    report.DISTANCES_HEADER,
    report.distances_summary,
    report.render_distances,
    distances.ABOUT,
    distances.generate,
)
ATTACKS = Suite(
    "attacks",
    attacks.ATTEMPTS,
    ATTACKS_PAGE,
    report.ATTACKS_HEADER,
    report.attacks_summary,
    report.render_attacks,
    attacks.ABOUT,
    attacks.generate,
)

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def _program(may_install: bool, name: str = DEFECTS.program) -> Path:
    try:
        return build.build_defects(may_install=may_install) / name
    except build.BuildError as error:
        raise click.ClickException(str(error)) from error


def _choose(
    program: Path, families: tuple[str, ...], of: Suite = DEFECTS
) -> list[cases.Case]:
    every = cases.load(program) if of.generate is None else [*of.generate()]
    known = of.about or dict.fromkeys(case.family for case in every)
    for family in families:
        if family not in known:
            raise click.BadParameter(
                f"unknown family '{family}'; known: {', '.join(known)}"
            )
    return [case for case in every if not families or case.family in families]


def _find(
    families: tuple[str, ...],
    given: tuple[str, ...],
    repeats: int,
    may_install: bool,
    of: Suite,
) -> Findings:
    program = _program(may_install, of.program)
    chosen = _choose(program, families, of)
    choice = selection.choose_peers(given, peers.SECURITY)
    allocators, notes = selection.find_peers(choice, say, may_install=may_install)
    for note in notes:
        say(note)
    now = datetime.datetime.now().astimezone()
    found = Findings(
        machine.describe(),
        now.isoformat(timespec="seconds"),
        repeats,
        allocators,
        chosen,
        notes,
    )
    suite.run(program, found, say)
    return found


def _list(families: tuple[str, ...], may_install: bool) -> str:
    chosen = _choose(_program(may_install), families)
    lines = [f"{case.family}: {case.name}: {case.about}" for case in chosen]
    return "\n".join(dict.fromkeys(lines))


@click.command(
    context_settings={
        "max_content_width": 100,
        "help_option_names": ["-h", "--help"],
    }
)
@click.option(
    "--family",
    "families",
    multiple=True,
    metavar="FAMILY",
    help="Only this family of defects; may be repeated. See --list.",
)
@click.option(
    "--peer",
    "given",
    multiple=True,
    metavar="NAME[=LIBRARY]",
    help="Only this known peer, or one more as NAME=/PATH/LIBRARY.so; may be repeated.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    help=f"Runs of each case, of which the worst counts ({REPEATS}); attempts of each attack "
    f"({attacks.ATTEMPTS}).",
)
@click.option(
    "--from",
    "source",
    type=_file,
    metavar="FINDINGS.json",
    help="Run nothing, make the report of these findings again.",
)
@click.option(
    "--publish", "to_publish", is_flag=True, help=f"Also write docs/{PAGE.name}."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for security.html, security.md and security.json.",
)
@click.option(
    "--distances",
    "generated",
    is_flag=True,
    help="Generated defects at many distances from blocks of many sizes, instead of the usual "
    f"ones; with --publish, to docs/{DISTANCES_PAGE.name}.",
)
@click.option(
    "--attacks",
    "attacked",
    is_flag=True,
    help="Attacks that need luck, and how often they succeed, instead of the usual ones; with "
    f"--publish, to docs/{ATTACKS_PAGE.name}.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--no-install", is_flag=True, help="Do not install or build what is missing."
)
@click.option("--list", "only_list", is_flag=True, help="List the defects, and stop.")
def command(
    families: tuple[str, ...],
    given: tuple[str, ...],
    repeats: int | None,
    source: Path | None,
    to_publish: bool,
    out: Path | None,
    generated: bool,
    attacked: bool,
    as_json: bool,
    no_install: bool,
    only_list: bool,
) -> None:
    """Run programs with one defect each, and say which allocator catches which.

    Ends with status 1 if a program did not come to its defect under an allocator.
    """
    if generated and attacked:
        raise click.UsageError("--distances and --attacks: choose one")
    of = DISTANCES if generated else ATTACKS if attacked else DEFECTS
    if to_publish and (families or (given and not generated)):
        raise click.UsageError("--publish needs all families and all peers")
    if generated and source is not None:
        raise click.UsageError("--distances does not go with --from")
    if of is not DEFECTS and only_list:
        raise click.UsageError("--list goes with neither --distances nor --attacks")
    if only_list:
        click.echo(_list(families, not no_install))
        return
    if source is not None:
        found = _load(source)
        folder = out or source.parent
    else:
        found = _find(families, given, repeats or of.repeats, not no_install, of)
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = out or ROOT / "build" / "bench" / f"security-{now}"
    try:
        _write(found, folder, of)
        reason = ""
        say(f"written to {folder}")
    except Failure as failure:
        reason = f"{failure}; the findings are on standard output"
    if as_json or reason:
        click.echo(suite.to_json(found), nl=False)
    else:
        _show(of.summary(found))
    if reason:
        raise click.ClickException(reason)
    if to_publish:
        write_whole(of.page, f"{of.header}\n\n{of.render(found)}")
        say(f"published: {of.page.name}")
    if found.failed:
        raise click.exceptions.Exit(1)


def _load(source: Path) -> Findings:
    try:
        return suite.load(source)
    except suite.FindingsError as error:
        raise click.ClickException(str(error)) from error


def _write(found: Findings, folder: Path, of: Suite) -> None:
    make_folder(folder)
    suite.save(found, folder / "security.json")
    if of is not DEFECTS:
        write_whole(
            folder / f"{of.page.stem.removeprefix('security-')}.md", of.render(found)
        )
        return
    write_whole(folder / "security.md", report.render_markdown(found))
    write_whole(folder / "security.html", report.render_html(found))


def _show(lines: list[str]) -> None:
    text = "\n".join(lines)
    console = Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        click.echo(text)
