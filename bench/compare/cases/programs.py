"""Real programs that do real work."""

from bench.compare.cases.case import Case

CASES: tuple[Case, ...] = ()
