"""Parts of the manual pages, from what the commands and the library say of themselves."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

import click

# In a line of a manual page, a hyphen that begins a word is a minus.
MINUS = re.compile(r"(?<![\w\\])-+")
# What an option takes, behind its names: `-o, --option NAME=VALUE`.
NAMES = re.compile(r"(?P<names>-[^\s,]+(?:(?:,| /) -[^\s,]+)*)(?: (?P<value>.+))?")
BETWEEN = re.compile(r"(, | / )")
CELL = re.compile(r"(?<!\\)\|")


def title(name: str, section: int, version: str, kind: str) -> str:
    """The first line of a page. It has no date: the same sources give the same page."""
    return f'.TH {name.upper()} {section} "" "Allod {version}" "{kind}"\n'


def commands(group: click.Group, name: str) -> str:
    """A section for each command, those of groups within it included."""
    context = click.Context(group, info_name=name)
    return "".join(f"{line}\n" for line in _commands(context))


def _commands(context: click.Context) -> Iterator[str]:
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            yield from _commands(inner)
        else:
            yield from _command(command, inner)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f'.SS "{plain(usage)}"'
    for number, paragraph in enumerate(_paragraphs(command.help or "")):
        if number > 0:
            yield ".PP"
        yield from _lines(paragraph)
    for parameter in command.get_params(context):
        if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
            continue
        record = parameter.get_help_record(context)
        if record is not None:
            yield ".TP"
            yield _names(record[0])
            yield from _lines(record[1])


def _paragraphs(text: str) -> list[str]:
    """The paragraphs of a help text, each in one line."""
    whole = inspect.cleandoc(text).replace("\b\n", "")
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", whole) if part]


def _names(record: str) -> str:
    """The names of an option in bold, and what it takes in italics."""
    found = NAMES.fullmatch(record)
    if found is None:
        return f"\\fB{plain(record)}\\fR"
    words = BETWEEN.split(found["names"])
    words[::2] = [f"\\fB{plain(name)}\\fR" for name in words[::2]]
    names = "".join(words)
    value = found["value"]
    return names if value is None else f"{names} \\fI{plain(value)}\\fR"


def options(table: str) -> str:
    """The options of the library, from the table that it writes in Markdown."""
    lines: list[str] = []
    for row in table.splitlines()[2:]:
        cells = [cell.strip() for cell in CELL.split(row)[1:-1]]
        option, values, default, when, meaning = cells
        lines += [".TP", f"\\fB{plain(option)}\\fR"]
        lines += _lines(f"{meaning[:1].upper()}{meaning[1:]}.")
        lines += _lines(f"Values: {values}. Default: {default}. Read {when}.")
    return "".join(f"{line}\n" for line in lines)


def _lines(text: str) -> list[str]:
    """A text in lines that editors show whole."""
    return [plain(line) for line in textwrap.wrap(text, 72, break_on_hyphens=False)]


def plain(text: str) -> str:
    """A text that means nothing else to the formatter."""
    escaped = text.replace("`", "").replace("\\|", "|").replace("\\", "\\e")
    escaped = MINUS.sub(lambda found: "\\-" * len(found[0]), escaped)
    escaped = escaped.replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
