"""How a command line is read and how it ends: what all commands have in common."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from allod.console import Failure, NamedOutput, did_you_mean, say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


class Group(click.Group):
    """Lists its commands in the order in which a person meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_known = self.get_command(ctx, args[0]) is not None
        # A shell that completes the line is told nothing.
        if not is_known and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise no_command(self, ctx, args[0])
        return super().resolve_command(ctx, args)


def no_command(group: click.Group, ctx: click.Context, name: str) -> Failure:
    """What a person is told who names a command that is none."""
    path = ctx.command_path.removeprefix("allod").strip()
    rest = did_you_mean(name, group.commands)
    return Failure(
        f"there is no command {f'{path} {name}'.strip()}{rest};"
        f" {f'allod help {path}'.strip()} lists them",
        2,
    )


class HandsOver(click.Command):
    """A command whose arguments are another program's, -h and --help among them."""


def _complete_program(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """What a shell offers: programs on the PATH for the first word, and files."""
    from click.shell_completion import CompletionItem

    given = ctx.params.get(parameter.name or "")
    if not given and incomplete and "/" not in incomplete:
        names = {
            entry.name
            for folder in os.get_exec_path()
            if os.path.isdir(folder)
            for entry in os.scandir(folder)
            if entry.name.startswith(incomplete) and os.access(entry, os.X_OK)
        }
        if names:
            return [CompletionItem(name) for name in sorted(names)]
    return [CompletionItem(incomplete, type="file")]


# The same in all commands that run a program.
program_argument = click.argument(
    "program",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    shell_complete=_complete_program,
)


# The same in all commands that tell results.
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Tell the results as JSON."
)
output_option = click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the results to FILE.",
)


def forbid(ctx: click.Context, reason: str, *names: str) -> None:
    """Refuses options that would have no effect, where they are given."""
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "")
        if parameter.name in names and given is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} {reason}", ctx)


@click.command(name="help")
@click.argument("command", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, command: Sequence[str]) -> None:
    """List the commands, or explain one."""
    context = ctx.parent
    assert context is not None
    for index, name in enumerate(command, 1):
        group = context.command
        found = (
            group.get_command(context, name) if isinstance(group, click.Group) else None
        )
        if found is None:
            of = group if isinstance(group, click.Group) else ctx.find_root().command
            assert isinstance(of, click.Group)
            raise no_command(of, context, name)
        if isinstance(found, HandsOver):
            ctx.invoke(found, arguments=[*command[index:], "--help"])
        settings = found.context_settings
        context = click.Context(found, parent=context, info_name=name, **settings)
    click.echo(context.get_help())


def main(group: click.Group) -> None:
    """Runs the command line."""
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(NamedOutput(1, "w", closefd=False)),
        errors="backslashreplace",
        line_buffering=os.isatty(1),
    )
    status = _run_to_status(group)
    try:
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)
    sys.exit(status)


def _run_to_status(group: click.Group) -> int:
    """Everything that goes wrong on the way is one line."""
    try:
        status = _run_command(group)
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


def _run_command(group: click.Group) -> int:
    try:
        result = group.main(prog_name="allod", standalone_mode=False)
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
