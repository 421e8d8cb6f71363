"""What is measured: each case is one workload with fixed parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field

GROUPS = (
    "small objects",
    "threads",
    "cores",
    "sizes",
    "memory over time",
    "locality",
    "latency",
    "calls",
    "heaps",
    "real programs",
)


@dataclass(frozen=True)
class Case:
    """One workload with its parameters; ``quick`` overrides some for a short run.

    ``program`` is one of bench/workloads, or with ``script`` a module of
    bench/programs that starts a real program. With ``lines``, cache lines that travel
    between cores are counted, and no time is measured. ``source`` says who published the
    pattern, and where.
    """

    name: str
    program: str
    about: str
    params: Mapping[str, int | str] = field(default_factory=dict)
    quick: Mapping[str, int | str] = field(default_factory=dict)
    threads: int = 1
    by_default: bool = True
    in_quick: bool = True
    group: str = GROUPS[0]
    source: str = ""
    script: bool = False
    lines: bool = False

    def arguments(self, quick: bool) -> list[str]:
        params = {**self.params, **(self.quick if quick else {})}
        return [
            part for name, value in params.items() for part in (f"--{name}", str(value))
        ]
