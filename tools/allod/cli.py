"""The commands of a user.

Commands import what they need when they run: starting a program must stay quick.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from allod import command_line
from allod.command_line import CONTEXT_SETTINGS, Group, forbid, help_command

FORMATS = ("text", "json")
ANY_PORT = "127.0.0.1:0"


# Generic since click 8.2, which has left Python 3.9.
if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:
    TextType = click.ParamType


class Bytes(TextType):
    """A number of bytes, at least 1, as the library reads it."""

    name = "bytes"
    FORM = re.compile(r"0*[1-9][0-9]{0,17}([KMGT](i?B)?|B)?", re.IGNORECASE)

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Checks it."""
        if self.FORM.fullmatch(value) is None:
            self.fail(f"'{value}' is not a size; expected bytes, such as 4096 or 512K")
        return value


class RunCommand(click.Command):
    """Accepts some options with and without a value, and never takes the program for one."""

    WITHOUT_VALUE: ClassVar = {"--stats": "text", "--live": ANY_PORT}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_values(args))

    def _with_values(self, args: Sequence[str]) -> list[str]:
        takes_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not (option.is_flag or option.count)
            for name in option.opts
        } - set(self.WITHOUT_VALUE)
        words = list(args)
        index = 0
        while index < len(words) and words[index].startswith("-"):
            if words[index] == "--":
                break
            if words[index] in self.WITHOUT_VALUE:
                words[index] += f"={self.WITHOUT_VALUE[words[index]]}"
            index += 2 if words[index] in takes_value else 1
        return words


# The same in all commands that tell results.
_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Tell the results as JSON."
)
_output_option = click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the results to FILE.",
)


def _means_option(
    _ctx: click.Context, _parameter: click.Parameter, value: str | None
) -> None:
    """-o has one meaning in all commands."""
    if value is not None:
        raise click.UsageError(f"-o means --option in allod run; use --output {value}")


@click.group(cls=Group, invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@click.version_option(package_name="allod", prog_name="allod")
@click.pass_context
def allod(ctx: click.Context) -> None:
    """Allod: a memory allocator for C and C++ programs.

    \b
    allod run -- PROGRAM ARGS...   runs any program on it
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@allod.command(
    cls=RunCommand,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option(
    "--debug",
    is_flag=True,
    help="Use the debug library: finds invalid frees, double frees, overflows, writes after free.",
)
@click.option(
    "--hardened", is_flag=True, help="Use the library that guards against attacks."
)
@click.option(
    "--check-copies/--no-check-copies",
    default=None,
    help="Stop memcpy, strcpy and their like when they leave a block, or do not; by default, they"
    " are stopped with --hardened.",
)
@click.option(
    "--stats",
    type=click.Choice(FORMATS),
    metavar="[=text|json]",
    help="Print statistics on stderr when the program ends.",
)
@click.option(
    "--live",
    metavar="[=[ADDRESS:]PORT]",
    help="Serve a page that shows the heap while it runs, and print its link.",
)
@click.option(
    "--children",
    is_flag=True,
    help="With --live: processes that the program starts serve pages, too.",
)
@click.option("--verbose", "-v", count=True, help="Report the start; twice: more.")
@click.option(
    "--purge-delay",
    type=int,
    metavar="MS",
    help="Delay before free memory goes back to the system; 0: at once, -1: only on malloc_trim.",
)
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set any option of the library; -o help=1 lists them.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Write a heap profile for pprof and a flame graph when the program ends, at its peak, and"
    " at each SIGUSR2.",
)
@click.option(
    "--interval",
    type=Bytes(),
    default="512K",
    show_default=True,
    metavar="BYTES",
    help="With --profile: mean number of bytes between two samples.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="NAME",
    help="With --profile: write NAME.pb.gz and NAME.html; PROGRAM by default.",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(
    ctx: click.Context,
    debug: bool,
    hardened: bool,
    check_copies: bool | None,
    stats: str | None,
    live: str | None,
    children: bool,
    verbose: int,
    purge_delay: int | None,
    options: Sequence[str],
    profile: bool,
    interval: str,
    output: Path | None,
    program: Sequence[str],
) -> None:
    """Run PROGRAM with Allod as its allocator.

    The library is built first if need be and preloaded into the program, which then takes this
    command's place: exit status and signals are the program's own.
    """
    from allod.run import run as run_program

    if debug and hardened:
        raise click.UsageError("--debug and --hardened are two libraries: choose one")
    environment: dict[str, str] = {}
    if stats is not None:
        environment["ALLOD_SHOW_STATS"] = stats
    if verbose:
        environment["ALLOD_VERBOSE"] = str(min(verbose, 2))
    if purge_delay is not None:
        environment["ALLOD_PURGE_DELAY"] = str(purge_delay)
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"'{option}' is not NAME=VALUE", param_hint="-o")
        plain = name.upper().replace("-", "_").removeprefix("ALLOD_")
        environment[f"ALLOD_{plain}"] = value
    if live is None:
        forbid(ctx, "needs --live", "children")
    elif ":" not in live:
        live = f"127.0.0.1:{live}"
    if check_copies is None:
        check_copies = hardened
    variant = "-debug" if debug else "-hardened" if hardened else ""
    if profile:
        from allod.profile.run import run_profiled

        status = run_profiled(
            program,
            environment,
            output,
            interval,
            variant=variant,
            live=live,
            children=children,
            check_copies=check_copies,
        )
        sys.exit(status)
    forbid(ctx, "needs --profile", "interval", "output")
    run_program(
        program,
        environment,
        library_name=f"liballod{variant}.so",
        live=live,
        children=children,
        check_copies=check_copies,
    )


@allod.command(
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option(
    "--suppressions",
    "-s",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Lines like leak:PATTERN, as for LeakSanitizer. Can be repeated.",
)
@_json_option
@_output_option
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def leaks(
    suppressions: Sequence[Path],
    as_json: bool,
    output: Path | None,
    program: Sequence[str],
) -> None:
    """Run PROGRAM and report the blocks that nothing leads to when it ends.

    The exit status is the program's, or 23 if that is 0 and something leaks.
    """
    from allod.profile.leaks import find_leaks

    sys.exit(find_leaks(program, suppressions, as_json=as_json, output=output))


@allod.command()
@click.argument(
    "report", required=False, type=click.Path(dir_okay=False, path_type=Path)
)
def symbolize(report: Path | None) -> None:
    """Name functions, files and lines in the call stacks of REPORT.

    REPORT is what a program has written to standard error, or to ALLOD_REPORT_FD as JSON; standard
    input by default. What is no report is copied. The files must be those that ran: one that is
    missing or has changed since is named, and its frames stay as they are. Functions that are not
    exported have names if their file has symbols, and lines if it was compiled with -g.
    """
    from allod.symbolize import symbolize as name_frames

    name_frames(report)


@allod.command()
@click.option("--once", is_flag=True, help="Print one table, in bytes, and end.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two refreshes.",
)
@click.option(
    "--sort",
    type=click.Choice(("live", "resident", "waste", "growth", "pid")),
    default="live",
    show_default=True,
    help="Which program comes first.",
)
@_json_option
@_output_option
@click.argument("programs", nargs=-1, metavar="[PID|LINK]...")
@click.pass_context
def top(
    ctx: click.Context,
    once: bool,
    every: float,
    sort: str,
    as_json: bool,
    output: Path | None,
    programs: Sequence[str],
) -> None:
    """Show the heaps of running programs in the terminal.

    They have to serve a live page (allod run --live), and are named by process id, by the link
    of the page, or by address and port with the token in ALLOD_LIVE_TOKEN; all of yours by
    default. Of a single one, threads, sizes, heaps and the call stacks that hold most are shown
    as well. q ends it.
    """
    from allod.top import print_once, show

    if once or as_json or output is not None:
        forbid(ctx, "does nothing with --once, --json or --output", "every")
        print_once(programs, sort, as_json=as_json, output=output)
    else:
        show(programs, every, sort)


@allod.command()
@click.option("--list", "as_list", is_flag=True, help="Of all programs; the default.")
@click.argument("process", required=False, metavar="[PID]")
def live(as_list: bool, process: str | None) -> None:
    """Print the links of live pages: of PID, or of all of your programs that serve one.

    Programs serve one if they were started with ./allod run --live.
    """
    from allod.watch import print_links

    if as_list and process is not None:
        raise click.UsageError("--list takes no process")
    print_links([] if process is None else [process])


@allod.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=click.Choice(("live", "peak", "total")),
    default="live",
    show_default=True,
    help="What to compare: bytes in use, at the peak, or ever allocated.",
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Print at most so many functions.",
)
@_json_option
@_output_option
def diff(
    first: Path,
    second: Path,
    kind: str,
    most: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """Compare two heap profiles by function.

    FIRST and SECOND are files of allod run --profile (NAME.pb.gz), or texts that the library
    wrote.
    """
    from allod.profile.compare import compare

    compare(first, second, kind, most, as_json=as_json, output=output)


@allod.command(
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the trace goes; PROGRAM.trace by default.",
)
@click.option(
    "-o", callback=_means_option, expose_value=False, hidden=True, metavar="FILE"
)
@click.option(
    "--peer",
    default="glibc",
    show_default=True,
    metavar="NAME[=LIBRARY]",
    help="The allocator that serves the program meanwhile.",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def record(output: Path | None, peer: str, program: Sequence[str]) -> None:
    """Run PROGRAM and record every allocation call.

    Processes that it starts write traces of their own beside the first: FILE.PID. The exit status
    is the program's, or 1 if that is 0 and a trace could not be written to its end.
    """
    from allod.record import record as record_program

    sys.exit(record_program(program, output, peer))


@allod.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME[=LIBRARY]",
    help="An allocator, as allod bench --list names them, or any library. Can be repeated."
    " Default: allod and glibc.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    help="Measured rounds at most, after one warm-up round.",
)
@click.option(
    "--touch",
    type=click.Choice(("nothing", "ends", "pages")),
    default="pages",
    show_default=True,
    help="What to write to each new block.",
)
@click.option("--verify", is_flag=True, help="Check that blocks keep their contents.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds after which a run counts as hung.",
)
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with room for about the size of the trace.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def replay(
    trace: Path,
    peers: Sequence[str],
    rounds: int,
    touch: str,
    verify: bool,
    timeout: float,
    scratch: Path | None,
    as_json: bool,
) -> None:
    """Run the allocation calls of TRACE under several allocators.

    Prints time and resident memory of each. The exit status is 1 if one of them failed.
    """
    from allod.replay import replay as replay_trace

    sys.exit(
        replay_trace(
            trace,
            peers,
            rounds=rounds,
            touch=touch,
            verify=verify,
            timeout=timeout,
            scratch=scratch,
            as_json=as_json,
        )
    )


@allod.group(cls=Group)
def trace() -> None:
    """Look into what allod record wrote."""


@trace.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the summary with its plots to one page.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the summary and its plots to files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers as JSON.")
def info(trace: Path, html: Path | None, out: Path | None, as_json: bool) -> None:
    """Sum up TRACE: live bytes, sizes, lifetimes, threads."""
    from allod.trace.show import show

    show(trace, html=html, folder=out, as_json=as_json)


@trace.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--most", type=click.IntRange(1), help="Print at most so many events.")
def dump(trace: Path, most: int | None) -> None:
    """Print the events of TRACE, thread by thread.

    Thread, nanoseconds since the start, function, address (for realloc the old one and the new
    one), size, alignment.
    """
    from allod.trace.tool import dump as dump_trace

    dump_trace(trace, most)


allod.add_command(help_command)


def main() -> None:
    """Runs the command line of an installed package."""
    command_line.main(allod)
