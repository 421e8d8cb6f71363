"""The command line of `./allod`: the commands of a user, and those of a developer.

Commands import what they need when they run: starting a program must stay quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
from allod import cli, cli_profile, cli_trace, command_line, supplies
from allod.command_line import CONTEXT_SETTINGS, Group, HandsOver, forbid
from allod.console import say, shown
from workshop.paths import version

from clone.supplies import Clone

SYSTEM_NAMES = ("x86-64", "arm64", "x86-64-musl", "arm64-musl")
PRESET_NAMES = (
    *("release", "clang", "windows", "macos-x86-64", "macos-arm64", "freebsd-x86-64"),
    *("freebsd-arm64", "asan", "tsan", "fuzz"),
)


class TestCommand(click.Command):
    """Knows no short options but -h: the others, and letters behind them, are pytest's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = ["--help" if word == "-h" else word for word in args]
        return super().parse_args(ctx, words)


@click.command()
@click.option(
    "--preset",
    type=click.Choice(PRESET_NAMES),
    default="release",
    show_default=True,
    help="What to build: the libraries with gcc or clang, or instrumented tests.",
)
@click.option("--tests", is_flag=True, help="Build the test programs as well.")
@click.option(
    "--jobs", "-j", type=click.IntRange(1), help="Number of parallel compilations."
)
@click.option("--verbose", "-v", is_flag=True, help="Show the output of the tools.")
def build(preset: str, tests: bool, jobs: int | None, verbose: bool) -> None:
    """Build the libraries into build/<preset>/."""
    from workshop.build import PRESETS, ensure_built
    from workshop.paths import build_dir

    chosen = PRESETS[preset]
    tests = tests or not chosen.makes_products
    if not ensure_built(chosen, tests=tests, jobs=jobs, echo=verbose):
        say(f"{preset} is up to date")
    if chosen.makes_products:
        for name in chosen.products:
            click.echo(shown(build_dir(preset) / name))


@click.command()
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
    help="Total time.",
)
@click.option("--jobs", "-j", type=click.IntRange(1), help="Number of parallel runs.")
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
    from workshop import fuzz as fuzzing

    if totals:
        forbid(
            ctx, "does nothing with --totals", "targets", "minutes", "jobs", "record"
        )
        click.echo(fuzzing.totals())
        return
    chosen = list(dict.fromkeys(targets)) or list(fuzzing.TARGETS)
    if fuzzing.fuzz(chosen, minutes, jobs or os.cpu_count() or 1, record=record):
        sys.exit(1)


@click.command(
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
    from workshop import testing

    if list_groups:
        click.echo("\n".join(testing.groups()))
        return
    sys.exit(testing.test(only, arguments, quick=quick))


@click.command(name="release")
@click.option(
    "--system",
    "systems",
    multiple=True,
    type=click.Choice(SYSTEM_NAMES),
    help="Build for this one; can be repeated. Default: all.",
)
def release_command(systems: Sequence[str]) -> None:
    """Build wheels of Python, packages of systems and an archive into dist/.

    They hold the commands, the libraries and the programs that they need. The wheel for this
    machine is installed into a new environment and tried there. Checksums and a bill of materials
    lie beside them.
    """
    from workshop.release import release, table

    for line in table(release(systems or SYSTEM_NAMES)):
        click.echo(line)


@click.command(
    cls=HandsOver,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: Sequence[str]) -> None:
    """Measure Allod side by side with other allocators."""
    from clone.bench import bench as run_bench

    run_bench(arguments)


@click.group(cls=Group, invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@click.version_option(version(), prog_name="allod")
@click.pass_context
def allod(ctx: click.Context) -> None:
    """Allod: a memory allocator for C and C++ programs.

    \b
    ./allod run -- PROGRAM ARGS...   builds what is needed and runs any program on it
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


# In the order in which a person meets them.
for command in (
    *(build, fuzz),
    *(cli.run, cli_profile.leaks, cli.symbolize, cli.gdb, cli.live),
    *(cli_profile.profile, cli.top, cli_profile.diff, cli_profile.export),
    *(test, bench, release_command),
    *(cli_trace.record, cli_trace.replay, cli_trace.trace),
    command_line.help_command,
):
    allod.add_command(command)


def main() -> None:
    """Runs the command line."""
    supplies.use(Clone())
    command_line.main(allod)
