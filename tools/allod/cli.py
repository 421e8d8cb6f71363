"""The command line of `./allod`.

Commands import what they need when they run: starting a program must stay quick.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, TextIO

import click

from allod.console import Failure, NamedOutput, did_you_mean, say
from allod.paths import shown, version

PRESET_NAMES = ("release", "clang", "asan", "tsan", "fuzz")
FORMATS = ("text", "json")
ANY_PORT = "127.0.0.1:0"


class Bytes(click.ParamType[str]):
    """A number of bytes, at least 1, as the library reads it."""

    name = "bytes"
    FORM = re.compile(r"0*[1-9][0-9]{0,17}([KMGT](i?B)?|B)?", re.IGNORECASE)

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Checks it."""
        if self.FORM.fullmatch(value) is None:
            self.fail(f"'{value}' is no number of bytes from 1 on, as 4096 or 512K")
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


class TestCommand(click.Command):
    """Knows no short options but -h: the others, and letters behind them, are pytest's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = ["--help" if word == "-h" else word for word in args]
        return super().parse_args(ctx, words)


class Group(click.Group):
    """Lists its commands in the order in which a person meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise no_command(self, ctx, args[0])
        return super().resolve_command(ctx, args)


def no_command(group: click.Group, ctx: click.Context, name: str) -> Failure:
    """What a person is told who names a command that is none."""
    path = ctx.command_path.removeprefix("allod").strip()
    rest = did_you_mean(name, group.commands)
    return Failure(
        f"there is no command {f'{path} {name}'.strip()}{rest};"
        f" {f'./allod help {path}'.strip()} lists them",
        2,
    )


def _means_option(
    _ctx: click.Context, _parameter: click.Parameter, value: str | None
) -> None:
    """-o has one meaning in all commands."""
    if value is not None:
        raise click.UsageError(f"-o is --option of ./allod run; write --output {value}")


def forbid(ctx: click.Context, reason: str, *names: str) -> None:
    """Refuses options that would have no effect, where they are given."""
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "")
        if parameter.name in names and given is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} {reason}", ctx)


@click.group(
    cls=Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(version(), prog_name="allod")
@click.pass_context
def allod(ctx: click.Context) -> None:
    """Allod: a memory allocator for C and C++ programs.

    \b
    ./allod run -- PROGRAM ARGS...   builds what is needed and runs any program on it
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@allod.command()
@click.option(
    "--preset",
    type=click.Choice(PRESET_NAMES),
    default="release",
    show_default=True,
    help="What to build: the libraries with gcc or clang, or instrumented tests.",
)
@click.option("--tests", is_flag=True, help="Build the test programs as well.")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Compile so many at once.")
@click.option("--verbose", "-v", is_flag=True, help="Show the output of the tools.")
def build(preset: str, tests: bool, jobs: int | None, verbose: bool) -> None:
    """Build the libraries into build/<preset>/."""
    from allod.build import PRESETS, PRODUCTS, ensure_built
    from allod.paths import build_dir

    chosen = PRESETS[preset]
    tests = tests or not chosen.makes_products
    if not ensure_built(chosen, tests=tests, jobs=jobs, echo=verbose):
        say(f"{preset} is up to date")
    if chosen.makes_products:
        for name in PRODUCTS:
            click.echo(shown(build_dir(preset) / name))


@allod.command()
@click.option(
    "--target",
    "targets",
    multiple=True,
    type=click.Choice(("fuzz_space", "fuzz_slab", "fuzz_heap", "corruption")),
    help="Run this one; can be repeated. Default: all.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Take so long, all together.",
)
@click.option("--jobs", "-j", type=click.IntRange(1), help="Run so many at once.")
@click.option("--record", is_flag=True, help="Add a line for each to the record.")
@click.option("--totals", is_flag=True, help="Sum up the record, and stop.")
@click.pass_context
def fuzz(
    ctx: click.Context,
    targets: tuple[str, ...],
    minutes: float,
    jobs: int | None,
    record: bool,
    totals: bool,
) -> None:
    """Look for inputs that break a promise, for longer than the tests do.

    Three fuzzers play sequences of calls on the layers; "corruption" makes random calls with
    defects among them on the hardened library, which must find each that the model says. Ends with
    status 1 if there is a finding, and says where it is. Ctrl-C ends what runs: what was done until
    then is recorded, and the status is 130.
    """
    from allod import fuzz as fuzzing

    if totals:
        forbid(
            ctx, "does nothing with --totals", "targets", "minutes", "jobs", "record"
        )
        click.echo(fuzzing.totals())
        return
    chosen = list(dict.fromkeys(targets)) or list(fuzzing.TARGETS)
    if fuzzing.fuzz(chosen, minutes, jobs or os.cpu_count() or 1, record=record):
        sys.exit(1)


@allod.command(
    cls=RunCommand,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@click.option(
    "--debug",
    is_flag=True,
    help="Use the library that finds wrong frees, and writes past the end and after free.",
)
@click.option(
    "--hardened", is_flag=True, help="Use the library that guards against attacks."
)
@click.option(
    "--check-copies",
    is_flag=True,
    help="Stop memcpy, strcpy and their like when they leave a block.",
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
@click.option("--verbose", "-v", count=True, help="Report the start; twice: more.")
@click.option(
    "--purge-delay",
    type=int,
    metavar="MS",
    help="Give free memory back after so long; 0: at once, -1: only when told.",
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
    help="With --profile: sample one allocation for so many bytes.",
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
    check_copies: bool,
    stats: str | None,
    live: str | None,
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
    variant = "-debug" if debug else "-hardened" if hardened else ""
    if profile:
        forbid(ctx, "does not go with --profile", "check_copies", "live")
        from allod.profile.run import run_profiled

        sys.exit(run_profiled(program, environment, output, interval, variant=variant))
    forbid(ctx, "needs --profile", "interval", "output")
    if live is not None and ":" not in live:
        live = f"127.0.0.1:{live}"
    run_program(
        program,
        environment,
        library_name=f"liballod{variant}.so",
        live=live,
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
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def leaks(suppressions: Sequence[Path], program: Sequence[str]) -> None:
    """Run PROGRAM and report the blocks that nothing leads to when it ends.

    The exit status is the program's, or 23 if that is 0 and something leaks.
    """
    from allod.profile.leaks import find_leaks

    sys.exit(find_leaks(program, suppressions))


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
    help="Ask so often.",
)
@click.option(
    "--sort",
    type=click.Choice(("live", "resident", "waste", "growth", "pid")),
    default="live",
    show_default=True,
    help="Which program comes first.",
)
@click.argument("programs", nargs=-1, metavar="[PID|LINK]...")
@click.pass_context
def top(
    ctx: click.Context, once: bool, every: float, sort: str, programs: Sequence[str]
) -> None:
    """Show the heaps of running programs in the terminal.

    They have to serve a live page (./allod run --live), and are named by process id, by the link
    of the page, or by address and port with the token in ALLOD_LIVE_TOKEN; all of yours by
    default. Of a single one, threads, sizes, heaps and the call stacks that hold most are shown
    as well. q ends it.
    """
    from allod.top import print_once, show

    if once:
        forbid(ctx, "does nothing with --once", "every")
        print_once(programs, sort)
    else:
        show(programs, every, sort)


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
    help="Print no more functions than that.",
)
def diff(first: Path, second: Path, kind: str, most: int) -> None:
    """Compare two heap profiles by function.

    FIRST and SECOND are files of ./allod run --profile (NAME.pb.gz), or texts that the library
    wrote.
    """
    from allod.profile.compare import compare

    compare(first, second, kind, most)


@allod.command(
    cls=TestCommand,
    context_settings={
        "ignore_unknown_options": True,
        "help_option_names": ["--help"],
    },
    options_metavar="[OPTIONS]",
)
@click.option("--quick", is_flag=True, help="Leave out the tests marked slow.")
@click.option(
    "--only",
    multiple=True,
    metavar="GROUP",
    help="Run one group: a folder or file of tests/. Can be repeated.",
)
@click.option("--list-groups", is_flag=True, help="Print the groups and end.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGS]")
def test(
    quick: bool, only: Sequence[str], list_groups: bool, arguments: Sequence[str]
) -> None:
    """Build and run the tests.

    Everything that is not an option above goes to pytest: paths, -k EXPRESSION, -x, ... The last
    line says how many tests passed and failed.
    """
    from allod import testing

    if list_groups:
        click.echo("\n".join(testing.groups()))
        return
    sys.exit(testing.test(only, arguments, quick=quick))


@allod.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: Sequence[str]) -> None:
    """Measure Allod side by side with other allocators."""
    from allod.bench import bench as run_bench

    run_bench(arguments)


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
    help="An allocator, as ./allod bench --list names them, or any library. Can be repeated."
    " Default: allod and glibc.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    help="Measured rounds at most; one more is made first and not counted.",
)
@click.option(
    "--touch",
    type=click.Choice(("nothing", "ends", "pages")),
    default="pages",
    show_default=True,
    help="What is written to a block when it is new.",
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
    """Look into what ./allod record wrote."""


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
    from allod.trace import show

    show(trace, html=html, folder=out, as_json=as_json)


@trace.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--most", type=click.IntRange(1), help="Print no more events than that.")
def dump(trace: Path, most: int | None) -> None:
    """Print the events of TRACE, thread by thread.

    Thread, nanoseconds since the start, function, address (for realloc the old one and the new
    one), size, alignment.
    """
    from allod.trace import dump as dump_trace

    dump_trace(trace, most)


@allod.command(name="help")
@click.argument("command", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, command: Sequence[str]) -> None:
    """List the commands, or explain one."""
    context = ctx.parent
    assert context is not None
    if command[:1] == ("bench",):
        from allod.bench import bench as run_bench

        run_bench([*command[1:], "--help"])
    for name in command:
        group = context.command
        found = (
            group.get_command(context, name) if isinstance(group, click.Group) else None
        )
        if found is None:
            of = group if isinstance(group, click.Group) else allod
            raise no_command(of, context, name)
        settings = found.context_settings
        context = click.Context(found, parent=context, info_name=name, **settings)
    click.echo(context.get_help())


def main() -> None:
    """Runs the command line."""
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(NamedOutput(1, "w", closefd=False)),
        errors="backslashreplace",
        line_buffering=os.isatty(1),
    )
    status = _run_to_status()
    try:
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)
    sys.exit(status)


def _run_to_status() -> int:
    """Everything that goes wrong on the way is one line."""
    try:
        status = _run_command()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Who reads has had enough.
        _drop(sys.stdout)
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        say(f"error: {place}{error.strerror or error}")
        _drop(sys.stdout)
        return 1


def _run_command() -> int:
    try:
        result = allod.main(prog_name="allod", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except SystemExit as ended:
        return (
            ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        )
    except Failure as failure:
        say(f"error: {failure}")
        return failure.status
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return 128 + signal.SIGINT


def _drop(output: TextIO) -> None:
    """What is still to be written at the end is not tried again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, output.fileno())
    os.close(nothing)
