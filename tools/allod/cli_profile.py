"""The commands of a user that find leaks, and take, compare and export heap profiles."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from allod.command_line import json_option, output_option, program_argument


@click.command(
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
@json_option
@output_option
@program_argument
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


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long; an interrupt ends it early.",
)
@click.option(
    "--interval",
    type=click.IntRange(1),
    default=512 << 10,
    show_default=True,
    metavar="BYTES",
    help="Mean number of bytes between two samples, unless the process takes samples already.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="NAME",
    help="Write NAME.pb.gz and NAME.html; PROGRAM.PID by default.",
)
@click.argument("process", type=click.IntRange(1), metavar="PID")
def profile(process: int, seconds: float, interval: int, output: Path | None) -> None:
    """Profile the heap of a process that runs already on Allod, without a restart.

    Writes what it allocated meanwhile, and what it held at the end, as far as that was sampled,
    for pprof and as a page. The process takes no samples and serves no page afterwards, unless it
    did before.
    """
    from allod.profile.attach import profile_running

    profile_running(process, seconds, output, interval)


@click.command()
@click.argument("first")
@click.argument("second")
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
    metavar="N",
    help="Print at most so many functions.",
)
@json_option
@output_option
def diff(
    first: str,
    second: str,
    kind: str,
    most: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """Compare two heap profiles by function.

    FIRST and SECOND are files of allod run --profile (NAME.pb.gz), texts that the library wrote,
    or processes that serve a live page, by id or link.
    """
    from allod.profile.compare import compare

    compare(first, second, kind, most, as_json=as_json, output=output)


@click.command()
@click.argument("profile")
@click.option(
    "--format",
    "form",
    type=click.Choice(("speedscope", "dhat", "otlp", "folded", "pprof", "html")),
    default="speedscope",
    show_default=True,
    help="dhat: for Firefox's profiler; otlp: OpenTelemetry's; folded: a line for each stack.",
)
@click.option(
    "--kind",
    type=click.Choice(("live", "peak", "total")),
    default="live",
    show_default=True,
    help="With folded: bytes in use, at the peak, or ever allocated. Others have all.",
)
@output_option
def export(profile: str, form: str, kind: str, output: Path | None) -> None:
    """Write PROFILE in the format of another tool.

    PROFILE is a file of allod run --profile (NAME.pb.gz), a text that the library wrote, or a
    process that serves a live page, by id or link. speedscope goes to https://www.speedscope.app,
    dhat to https://profiler.firefox.com, otlp to collectors of OpenTelemetry, and folded to
    flamegraph.pl.
    """
    from allod.profile.export import export as export_profile

    export_profile(profile, form, kind, output)
