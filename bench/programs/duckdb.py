"""DuckDB: questions to tables in columns, in memory, by one thread.

Python only starts it. Its largest blocks come from an allocator of its own; what else it
needs, it gets from malloc.
"""

import sys

from bench.programs.common import WORK, Bench, Outcome, Script, main
from bench.programs.process import digest

ROWS = 600_000


def run(bench: Bench) -> Outcome:
    """One run; the script prints a checksum of the answers."""
    rows = bench.count(ROWS)
    command = (sys.executable, "-B", "-P", WORK / "columns.py", str(rows))
    usage, output = bench.run(*command)
    return Outcome(usage, rows, digest(output))


SCRIPT = Script("duckdb", __doc__, {}, run, module="duckdb")

if __name__ == "__main__":
    main(SCRIPT)
