"""What is measured: each case is one workload program with fixed parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """One workload with its parameters; ``quick`` overrides some for a short run."""

    name: str
    program: str
    about: str
    params: Mapping[str, int] = field(default_factory=dict)
    quick: Mapping[str, int] = field(default_factory=dict)
    threads: int = 1
    by_default: bool = True

    def arguments(self, quick: bool) -> list[str]:
        params = {**self.params, **(self.quick if quick else {})}
        return [
            part for name, value in params.items() for part in (f"--{name}", str(value))
        ]


CASES = (
    Case(
        "immediate",
        "immediate",
        "one thread, malloc and free at once, 1 B to 1 KiB",
        quick={"ops": 10_000_000},
    ),
    Case(
        "replace",
        "replace",
        "one thread, random replacement in 100,000 live blocks of up to 1 KiB",
        quick={"ops": 1_500_000},
    ),
    Case(
        "tree",
        "tree",
        "one thread builds and tears down a tree of a million nodes",
        quick={"rounds": 2},
    ),
    Case(
        "prodcons",
        "prodcons",
        "one thread allocates, another frees, 16 to 256 B",
        quick={"batches": 6_000},
        threads=2,
    ),
    Case(
        "prodcons-pairs",
        "prodcons",
        "four producers, four consumers",
        params={"pairs": 4, "batches": 5_000},
        quick={"batches": 1_500},
        threads=8,
        by_default=False,
    ),
    Case(
        "sweep",
        "sweep",
        "one thread, malloc and free of each size, 1 B to 4 MiB, untouched",
        quick={"batches": 5},
    ),
    Case(
        "sweep-touch",
        "sweep",
        "one thread, the first byte of each page written, 1 B to 4 MiB",
        params={"touch": 1},
        quick={"batches": 5},
    ),
    Case(
        "sweep-threads",
        "sweep",
        "two threads at once, untouched, 1 B to 4 MiB",
        params={"threads": 2},
        quick={"batches": 5},
        threads=2,
    ),
    Case(
        "sweep-large",
        "sweep",
        "one thread, the first byte of each page written, 1 B to 64 MiB",
        params={"touch": 1, "max": 64 << 20},
        quick={"batches": 3},
        by_default=False,
    ),
    Case(
        "bulk",
        "bulk",
        "one thread, 5,000 equal blocks allocated, then freed in three orders",
        quick={"rounds": 300},
    ),
    Case(
        "bulk-threads",
        "bulk",
        "two threads, each with 5,000 equal blocks, freed in three orders",
        params={"threads": 2},
        quick={"rounds": 300},
        threads=2,
    ),
)

CASES_BY_NAME = {case.name: case for case in CASES}

# The case whose system calls are counted: a sweep of one thread that marks each size.
TRACED_CASE = "sweep"
