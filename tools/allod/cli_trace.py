"""The commands of a user that record and replay traces."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from allod.command_line import Group, program_argument


def _means_option(
    _ctx: click.Context, _parameter: click.Parameter, value: str | None
) -> None:
    """-o has one meaning in all commands."""
    if value is not None:
        raise click.UsageError(f"-o means --option in allod run; use --output {value}")


@click.command(
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
@program_argument
def record(output: Path | None, peer: str, program: Sequence[str]) -> None:
    """Run PROGRAM and record every allocation call.

    Processes that it starts write traces of their own beside the first: FILE.PID. The exit status
    is the program's, or 1 if that is 0 and a trace could not be written to its end.
    """
    from allod.record import record as record_program

    sys.exit(record_program(program, output, peer))


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME[=LIBRARY]",
    help="An allocator by its name, such as allod-hardened, or any library. Can be repeated."
    " Default: allod and glibc.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    metavar="N",
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
    metavar="SECONDS",
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


@click.group(cls=Group)
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
@click.option(
    "--most", type=click.IntRange(1), metavar="N", help="Print at most so many events."
)
def dump(trace: Path, most: int | None) -> None:
    """Print the events of TRACE, thread by thread.

    Thread, nanoseconds since the start, function, address (for realloc the old one and the new
    one), size, alignment.
    """
    from allod.trace.tool import dump as dump_trace

    dump_trace(trace, most)
