"""Names of functions as rows show them: short, and those that only pass allocations on."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

# What the server of the live page takes as well.
LIST = Path(__file__).with_name("wrappers.txt")
MORE = "ALLOD_LIVE_WRAPPERS"
HASH = re.compile(r"::h[0-9a-f]{16}$")
OPERATOR = re.compile(r"operator(\(\)|[<>=!+\-*/%&|^~,\[\]]*)")
ENDS = (" const", " &&", " &")
# What CPython calls functions without a name of their own, and those within functions.
PYTHON = re.compile(
    r"<(module|lambda|listcomp|dictcomp|setcomp|genexpr)>$|\.<locals>\."
)
ANONYMOUS = "(anonymous namespace)::"


@cache
def short(function: str) -> str:
    """The name of a function without parameters, template arguments and return type."""
    if PYTHON.search(function):
        return function
    name = HASH.sub("", function)
    front = ""
    if name.startswith("<"):
        front, name = _split_qualified(name)
    kept = []
    depth = place = 0
    has_parameters = False
    while place < len(name):
        each = name[place]
        if name.startswith(ANONYMOUS, place):
            place += len(ANONYMOUS)
            continue
        begins = place == 0 or not (
            name[place - 1].isalnum() or name[place - 1] in "_$"
        )
        found = OPERATOR.match(name, place) if depth == 0 and begins else None
        if found is not None:
            text = found[0]
            # Behind the symbol, template arguments may begin.
            text = text[:-1] if text.endswith(("<<<", "==<")) else text
            kept.append(text)
            place += len(text)
            continue
        if each in "<(":
            has_parameters = True
            depth += 1
        elif each in ">)" and depth > 0:
            depth -= 1
        elif depth == 0 and name.startswith(" [", place):
            break
        elif depth == 0:
            kept.append(each)
        place += 1
    result = "".join(kept).rstrip()
    for end in ENDS:
        result = result.removesuffix(end)
    if has_parameters:
        result = _without_return_type(result)
    return front + result or function


def _split_qualified(name: str) -> tuple[str, str]:
    """The type of Rust's "<type as trait>::function", and what comes behind the bracket."""
    depth = 0
    type_ends = None
    for place, each in enumerate(name):
        depth += each == "<"
        if depth == 1 and type_ends is None and name.startswith(" as ", place):
            type_ends = place
        if each == ">" and name[place - 1] != "-":
            depth -= 1
            if depth == 0:
                inner = name[1 : place if type_ends is None else type_ends]
                return (short(inner) if inner else "", name[place + 1 :])
    return "", name


def _without_return_type(name: str) -> str:
    """Names of functions have no spaces, but for some operators."""
    until = name.find("operator")
    before = name if until < 0 else name[:until]
    return name[before.rfind(" ") + 1 :]


@cache
def is_wrapper(name: str) -> bool:
    """Whether a function of this short name only passes allocations on."""
    exact, beginnings = _known()
    return name in exact or name.startswith(beginnings)


@cache
def _known() -> tuple[frozenset[str], tuple[str, ...]]:
    lines = LIST.read_text().splitlines() + os.environ.get(MORE, "").split(",")
    names = [line for line in lines if line and not line.startswith("#")]
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    return frozenset(names), beginnings
