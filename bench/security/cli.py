"""The command line of the security suite: ``./allod bench --security``."""

import datetime
from pathlib import Path

import click
from allod.console import Failure
from allod.files import make_folder, write_whole
from rich.console import Console
from rich.markdown import Markdown

from bench.compare import build, machine, peers, selection
from bench.compare.peers import ROOT
from bench.compare.progress import say
from bench.security import cases, distances, report, suite
from bench.security.suite import Findings

REPEATS = 3
PAGE = ROOT / "docs" / "security-results.md"
DISTANCES_PAGE = ROOT / "docs" / "security-distances.md"

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def _program(may_install: bool, name: str = "defects") -> Path:
    try:
        return build.build_defects(may_install=may_install) / name
    except build.BuildError as error:
        raise click.ClickException(str(error)) from error


def _choose(program: Path, families: tuple[str, ...]) -> list[cases.Case]:
    every = cases.load(program)
    known = dict.fromkeys(case.family for case in every)
    for family in families:
        if family not in known:
            raise click.BadParameter(
                f"unknown family '{family}'; known: {', '.join(known)}"
            )
    return [case for case in every if not families or case.family in families]


def _choose_generated(families: tuple[str, ...]) -> list[cases.Case]:
    every = [*distances.generate()]
    for family in families:
        if family not in distances.ABOUT:
            raise click.BadParameter(
                f"unknown family '{family}'; known: {', '.join(distances.ABOUT)}"
            )
    return [case for case in every if not families or case.family in families]


def _find(
    families: tuple[str, ...],
    given: tuple[str, ...],
    repeats: int,
    may_install: bool,
    generated: bool,
) -> Findings:
    program = _program(may_install, "strays" if generated else "defects")
    chosen = _choose_generated(families) if generated else _choose(program, families)
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
    default=REPEATS,
    show_default=True,
    help="Runs of each case, of which the worst counts.",
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
    "ones; with --publish, to docs/security-distances.md.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--no-install", is_flag=True, help="Do not install or build what is missing."
)
@click.option("--list", "only_list", is_flag=True, help="List the defects, and stop.")
def command(
    families: tuple[str, ...],
    given: tuple[str, ...],
    repeats: int,
    source: Path | None,
    to_publish: bool,
    out: Path | None,
    generated: bool,
    as_json: bool,
    no_install: bool,
    only_list: bool,
) -> None:
    """Run programs with one defect each, and say which allocator catches which.

    Ends with status 1 if a program did not come to its defect under an allocator.
    """
    if to_publish and (families or (given and not generated)):
        raise click.UsageError("--publish needs all families and all peers")
    if generated and (source is not None or only_list):
        raise click.UsageError("--distances goes with neither --from nor --list")
    if only_list:
        click.echo(_list(families, not no_install))
        return
    if source is not None:
        found = _load(source)
        folder = out or source.parent
    else:
        found = _find(families, given, repeats, not no_install, generated)
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = out or ROOT / "build" / "bench" / f"security-{now}"
    try:
        _write(found, folder, generated)
        reason = ""
        say(f"written to {folder}")
    except Failure as failure:
        reason = f"{failure}; the findings are on standard output"
    if as_json or reason:
        click.echo(suite.to_json(found), nl=False)
    else:
        _show(report.distances_summary(found) if generated else report.summary(found))
    if reason:
        raise click.ClickException(reason)
    if to_publish:
        _publish(found, generated)
    if found.failed:
        raise click.exceptions.Exit(1)


def _load(source: Path) -> Findings:
    try:
        return suite.load(source)
    except suite.FindingsError as error:
        raise click.ClickException(str(error)) from error


def _publish(found: Findings, generated: bool) -> None:
    page = DISTANCES_PAGE if generated else PAGE
    header = report.DISTANCES_HEADER if generated else report.HEADER
    text = (
        report.render_distances(found) if generated else report.render_markdown(found)
    )
    write_whole(page, f"{header}\n\n{text}")
    say(f"published: {page.name}")


def _write(found: Findings, folder: Path, generated: bool) -> None:
    make_folder(folder)
    suite.save(found, folder / "security.json")
    if generated:
        write_whole(folder / "distances.md", report.render_distances(found))
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
