"""The look of each allocator, the same in every picture."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """A colour for a light and one for a dark ground; dash and symbol tell those apart
    who are alike to colour-blind readers."""

    light: str
    dark: str
    symbol: str
    dash: str = "solid"


_KNOWN = {
    "allod": Look("#c1121f", "#ff6b6b", "circle"),
    "glibc": Look("#5f6773", "#a9b2bf", "square"),
    "mimalloc3": Look("#1d6fd1", "#6cb2ff", "diamond"),
    "mimalloc2": Look("#0891b2", "#4cc9e0", "diamond-open", "dot"),
    "mimalloc-secure": Look("#3b3fb6", "#9aa0ff", "diamond-tall", "dash"),
    "jemalloc": Look("#d97706", "#ffb454", "triangle-up"),
    "snmalloc": Look("#7c3aed", "#b794ff", "cross"),
    "snmalloc-checked": Look("#b14fc5", "#e39bf0", "cross-open", "dash"),
    "rpmalloc": Look("#15803d", "#5ad18a", "x"),
    "hardened_malloc": Look("#854d0e", "#d6a76a", "hexagon", "dash"),
    "hardened_malloc-light": Look("#a16207", "#e0bd7e", "hexagon-open", "dot"),
    "scudo": Look("#be185d", "#ff8fc0", "star", "dash"),
    "tcmalloc": Look("#5b8c0a", "#b5dd52", "triangle-down"),
    "tcmalloc-google": Look("#047857", "#6ee7b7", "triangle-down-open", "dot"),
    "tbb": Look("#8a6d00", "#e6cf4a", "pentagon", "dashdot"),
}
_OTHERS = (
    Look("#0d9488", "#2dd4bf", "square-open", "longdash"),
    Look("#1e3a8a", "#93a5e8", "triangle-left", "longdash"),
    Look("#3f8f2e", "#86c98f", "triangle-right", "longdash"),
    Look("#8b3fc4", "#c084fc", "star-open", "longdash"),
)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of each name; what we do not know gets one of the others."""
    given = list(names)
    unknown = [name for name in given if name not in _KNOWN]
    return {
        name: _KNOWN.get(name) or _OTHERS[unknown.index(name) % len(_OTHERS)]
        for name in given
    }
