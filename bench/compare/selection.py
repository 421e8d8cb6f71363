"""Which cases and which allocators a command line names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import click

from bench.compare import peers
from bench.compare.cases import CASES, Case
from bench.compare.peers import KNOWN, Peer


@dataclass(frozen=True)
class PeerChoice:
    """Peers as the command line names them."""

    known: tuple[str, ...]
    extra: dict[str, Path]


def choose_peers(given: Sequence[str], default: Sequence[str]) -> PeerChoice:
    """Known names, and NAME=LIBRARY for others; BadParameter says what is wrong."""
    names = tuple(dict.fromkeys((*KNOWN, *default)))
    known: list[str] = []
    extra: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if equals and (not name or not path):
            raise click.BadParameter(f"'{text}' should be NAME=/PATH/LIBRARY.so")
        if equals and (name in names or name in extra):
            raise click.BadParameter(f"the name '{name}' is taken")
        if not equals and name not in names and not peers.is_known(name):
            raise click.BadParameter(
                f"unknown peer '{name}'; known: {', '.join(names)}, "
                f"{peers.WITH_MEASURES}MEASURE,MEASURE with "
                f"{', '.join(peers.measures())}, or NAME=/PATH/LIBRARY.so"
            )
        if equals:
            extra[name] = Path(path)
        elif name not in known:
            known.append(name)
    return PeerChoice(tuple(known or default), extra)


def find_peers(
    choice: PeerChoice, say: Callable[[str], None], *, may_install: bool
) -> tuple[list[Peer], list[str]]:
    """The peers that can be had, and a note on each that cannot."""
    if may_install:
        peers.install_missing(choice.known, say)
    found: list[Peer] = []
    notes: list[str] = []
    for name in choice.known:
        try:
            found.append(peers.find(name))
        except peers.PeerError as error:
            notes.append(f"{name} is left out: {error}")
    for name, path in choice.extra.items():
        try:
            found.append(peers.from_file(name, path))
        except peers.PeerError as error:
            raise click.BadParameter(f"{name}: {error}") from error
    if not found:
        raise click.ClickException("no allocator to measure: " + "; ".join(notes))
    return found, notes


def find_again(stored: Sequence[Peer]) -> list[Peer]:
    """The peers of earlier results; ClickException says which are not what they were."""
    changed: list[str] = []
    found: list[Peer] = []
    for before in stored:
        try:
            if peers.is_known(before.name) or before.library is None:
                now = peers.find(before.name)
            else:
                now = peers.from_file(before.name, before.library)
        except peers.PeerError as error:
            changed.append(f"{before.name} is missing: {error}")
            continue
        found.append(now)
        if now.code != before.code:
            changed.append(f"{now.name} was {before.version}, and is {now.version}")
    if changed:
        raise click.ClickException(
            "rounds can be added with the same allocators only: " + "; ".join(changed)
        )
    return found


def choose_cases(
    workloads: Sequence[str], groups: Sequence[str], *, quick: bool
) -> list[Case]:
    """The named ones, those of the groups, or the usual ones."""
    named = {*workloads}

    def is_usual(case: Case) -> bool:
        return case.by_default and (case.in_quick or not quick)

    def is_of_groups(case: Case) -> bool:
        return case.group in groups and (is_usual(case) or case.lines)

    return [
        case
        for case in CASES
        if case.name in named
        or is_of_groups(case)
        or (is_usual(case) and not (named or groups))
    ]


def by_turns(cases: Sequence[Case]) -> list[Case]:
    """The same cases, one of each group after the other.

    If the time ends before the cases do, every group has some that are measured.
    """
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    turns = zip_longest(*groups.values())
    return [case for turn in turns for case in turn if case is not None]


def describe(choice: PeerChoice, say: Callable[[str], None]) -> str:
    """What can be measured, and which of it is here."""
    lines = []
    for group in dict.fromkeys(case.group for case in CASES):
        lines.append(f"workloads, {group}:")
        for case in CASES:
            if case.group == group:
                when = "" if case.by_default else " (when named)"
                when = " (with its group)" if case.lines else when
                lines.append(f"  {case.name:20} {case.about}{when}")
    found, notes = find_peers(choice, say, may_install=False)
    lines.append("peers:")
    lines += [
        f"  {each.name:16} {each.version}  {each.library or ''}" for each in found
    ]
    return "\n".join([*lines, *(f"  {note}" for note in notes)])
