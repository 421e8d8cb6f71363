"""Everything that can be measured."""

from bench.compare.cases import classics, patterns, programs
from bench.compare.cases.case import GROUPS, Case

__all__ = [
    "CASES",
    "CASES_BY_NAME",
    "GROUPS",
    "PURGING_CASES",
    "TRACED_CASE",
    "Case",
]

CASES = (*classics.CASES, *patterns.CASES, *programs.CASES)
CASES_BY_NAME = {case.name: case for case in CASES}

# The case whose system calls are counted: a sweep of one thread that marks each size.
TRACED_CASE = "sweep"
# Those where it is seen what it costs that memory goes back.
PURGING_CASES = ("phases", "survivors", "fragmentation", "large")
