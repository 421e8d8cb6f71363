"""RocksDB's db_bench: fills a database, overwrites it, reads and scans it.

The figures of one operation are db_bench's own. The database lies in memory where there
is room, so that no disk is measured.
"""

import re
import shutil
import tempfile
from pathlib import Path

from bench.programs.common import Bench, Outcome, Script, main
from bench.programs.process import Failure, digest

KEYS = 80_000
TESTS = ("fillrandom", "overwrite", "readrandom", "readrandomwriterandom", "seekrandom")
RESULT = re.compile(
    r"^(\w+) +: +([\d.]+) micros/op .*?(\d+) operations;(.*)$", re.MULTILINE
)
FOUND = re.compile(r"\(.*\)")
MEMORY = Path("/dev/shm")
BYTES_OF_KEY = 2000


def run(bench: Bench) -> Outcome:
    keys = bench.count(KEYS)
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > keys * BYTES_OF_KEY
    where = MEMORY if roomy else bench.directory
    with tempfile.TemporaryDirectory(dir=where, prefix="allod-bench-") as folder:
        usage, output = bench.run(
            *("db_bench", f"--db={folder}/db", f"--benchmarks={','.join(TESTS)}"),
            *(f"--num={keys}", "--seek_nexts=10"),
            *("--seed=1", "--threads=1", "--value_size=200", "--cache_size=8388608"),
            *("--write_buffer_size=4194304", "--compression_type=none"),
        )
    results = RESULT.findall(output.read_text(errors="replace"))
    if [name for name, *_ in results] != list(TESTS):
        raise Failure(f"db_bench: unexpected output {output.read_text()[-500:]!r}")
    answers = [(name, count, FOUND.findall(rest)) for name, _, count, rest in results]
    return Outcome(
        usage,
        sum(int(count) for _, _, count, _ in results),
        digest(repr(answers).encode()),
        {name: float(micros) * 1000 for name, micros, *_ in results},
    )


SCRIPT = Script("rocksdb", __doc__, {"db_bench": "rocksdb-tools"}, run)

if __name__ == "__main__":
    main(SCRIPT)
