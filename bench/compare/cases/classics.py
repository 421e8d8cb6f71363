"""Workloads that allocators have been compared with for decades."""

from bench.compare.cases.case import Case

CASES: tuple[Case, ...] = ()
