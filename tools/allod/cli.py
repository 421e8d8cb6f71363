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
from allod.cli_profile import diff, export, leaks, profile
from allod.cli_trace import record, replay, trace
from allod.command_line import (
    CONTEXT_SETTINGS,
    Group,
    forbid,
    help_command,
    json_option,
    output_option,
    program_argument,
)

FORMATS = ("text", "json")
LEVELS = ("light", "balanced", "all")
# As ALLOD_HARDENED says, or the library.
NO_LEVEL = "default"
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

    WITHOUT_VALUE: ClassVar = {
        "--hardened": NO_LEVEL,
        "--stats": "text",
        "--live": ANY_PORT,
    }

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


@click.command(
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
    "--hardened",
    type=click.Choice((*LEVELS, NO_LEVEL)),
    metavar="[=light|balanced|all]",
    help="Use the library that guards against attacks, with fewer measures or all.",
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
@program_argument
@click.pass_context
def run(
    ctx: click.Context,
    debug: bool,
    hardened: str | None,
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

    The library is preloaded into the program, which then takes this command's place: exit status
    and signals are the program's own. In a clone, the library is built first if need be.
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
    if hardened is not None and hardened != NO_LEVEL:
        environment["ALLOD_HARDENED"] = hardened
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
        check_copies = hardened is not None
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


@click.command()
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


class GdbCommand(click.Command):
    """Hands on all options but its own in the first place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_ours = args[:1] in (["--help"], ["-h"], ["--script"])
        return super().parse_args(ctx, args if is_ours else ["--", *args])


@click.command(cls=GdbCommand, options_metavar="")
@click.option(
    "--script",
    is_flag=True,
    help="Print the path of the commands, for `source` of a gdb that runs, and end.",
)
@click.argument("arguments", nargs=-1, metavar="[GDB-ARGUMENT]...")
def gdb(script: bool, arguments: Sequence[str]) -> None:
    """Start gdb with commands that tell what memory is to Allod.

    \b
    allod gdb -p PID             looks into a process, and stops it meanwhile
    allod gdb PROGRAM CORE       looks into a core file
    allod gdb --args PROGRAM     starts one

    \b
    (gdb) allod block ADDRESS    the block there, whether it is in use, its owner
    (gdb) allod slab ADDRESS     the slab around it, and the state of each block
    (gdb) allod heap             slabs by size class, huge blocks, what is free

    They need debug information of the library, such as a build from sources has, or the package
    allod-dbg.
    """
    from allod.debugger import COMMANDS, start

    if script:
        print(COMMANDS)
        return
    start(arguments)


@click.command()
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
@json_option
@output_option
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


@click.command()
@click.option("--list", "as_list", is_flag=True, help="Of all programs; the default.")
@click.option("--close", is_flag=True, help="End the page of PID, and take no samples.")
@click.argument("process", required=False, type=click.IntRange(1), metavar="[PID]")
def live(as_list: bool, close: bool, process: int | None) -> None:
    """Open the live page of PID, and print its link; or print those of all of your programs.

    PID is any process that runs on Allod, however it was started. Programs that were started with
    allod run --live have a page already. The process loads the server on request of its user or
    of root; where it takes no requests, gdb has it load the server.
    """
    from allod import attach
    from allod.watch import print_links, show_links

    if process is None:
        forbid(click.get_current_context(), "needs a process", "close")
        print_links([])
    elif as_list:
        raise click.UsageError("--list takes no process")
    elif close:
        attach.close(process)
    else:
        link = attach.attached(process)
        attach.sample(link)
        show_links([link])


# In the order in which a person meets them.
for command in (
    *(run, leaks, symbolize, gdb, top, live, profile, diff, export),
    *(record, replay, trace, help_command),
):
    allod.add_command(command)


def main() -> None:
    """Runs the command line of an installed package."""
    command_line.main(allod)
