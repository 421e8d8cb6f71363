"""SQLite's shell: numbered tests in the manner of its own speedtest1, in memory.

Like speedtest1 (D. Richard Hipp and others) it inserts, selects, updates and deletes with
and without indexes, and spells its numbers out. Each statement is parsed by itself, as
from an application that prepares none.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.programs.common import Bench, Outcome, Script, cached, main
from bench.programs.process import digest

ROWS = 30_000
UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TENS = [
    "ten",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
]


def spelled(number: int) -> str:
    """A text that grows with the number and sorts otherwise."""
    words = []
    while number:
        number, low = divmod(number, 100)
        words += [UNITS[low % 10]] + ([TENS[low // 10 - 1]] if low >= 10 else [])
    return " ".join(reversed(words)) or UNITS[0]


def transaction(statements: Iterator[str]) -> Iterator[str]:
    """Statements that take effect together."""
    yield "BEGIN;"
    yield from statements
    yield "COMMIT;"


def statements(rows: int) -> Iterator[str]:
    """The whole test; the selects print what they found."""
    chance = Random(1)

    def number() -> int:
        return chance.randrange(1, rows * 10)

    def inserts(table: str) -> Iterator[str]:
        for row in range(1, rows + 1):
            value = number()
            yield f"INSERT INTO {table} VALUES({row},{value},'{spelled(value)}');"

    def ranges(what: str, count: int) -> Iterator[str]:
        for _ in range(count):
            low = number()
            yield what.format(low=low, high=low + rows // 10, text=spelled(low)[:9])

    few, many = rows // 400 + 1, rows // 4
    yield "PRAGMA cache_size=-64000; PRAGMA temp_store=2;"
    yield "CREATE TABLE plain(a INTEGER, b INTEGER, c TEXT);"
    yield "CREATE TABLE keyed(a INTEGER PRIMARY KEY, b INTEGER UNIQUE ON CONFLICT REPLACE, c TEXT);"
    yield "CREATE TABLE texts(a TEXT PRIMARY KEY, b INTEGER) WITHOUT ROWID;"
    yield from transaction(inserts("plain"))
    yield from transaction(inserts("keyed"))
    yield from ranges(
        "SELECT count(*), avg(b), max(c) FROM plain WHERE b BETWEEN {low} AND {high};",
        few,
    )
    yield from ranges(
        "SELECT count(*), sum(length(c)) FROM plain WHERE c LIKE '%{text}%';", few
    )
    yield "CREATE INDEX plain_b ON plain(b); CREATE INDEX plain_c ON plain(c, a);"
    yield from ranges(
        "SELECT b, c FROM plain WHERE b > {low} ORDER BY b LIMIT 3;", many
    )
    yield from ranges(
        "SELECT a FROM plain WHERE c >= '{text}' ORDER BY c, a LIMIT 2;", many
    )
    yield "INSERT OR IGNORE INTO texts SELECT c, b FROM plain ORDER BY c DESC;"
    yield "SELECT a, group_concat(b) FROM keyed WHERE b%7=1 GROUP BY a%50;"
    yield "SELECT count(*), sum(k.a) FROM plain p JOIN keyed k ON p.b=k.b JOIN texts t ON t.a=p.c;"
    yield from ranges(
        "SELECT sum(a), (SELECT count(*) FROM texts WHERE b<p.b LIMIT 9) FROM plain p"
        " WHERE b BETWEEN {low} AND {low}+40 GROUP BY c HAVING sum(a)>5;",
        few,
    )
    yield from transaction(
        ranges(
            "UPDATE plain SET b=b+1, c=c||' {text}' WHERE b BETWEEN {low} AND {low}+9;",
            many,
        )
    )
    yield from transaction(
        ranges("DELETE FROM plain WHERE b BETWEEN {low} AND {low}+4;", many)
    )
    yield "CREATE TRIGGER gone AFTER DELETE ON keyed BEGIN DELETE FROM texts WHERE a=old.c; END;"
    yield from transaction(
        ranges("DELETE FROM keyed WHERE b BETWEEN {low} AND {low}+4;", many)
    )
    yield "INSERT INTO plain SELECT a, b, upper(c) FROM keyed;"
    yield "CREATE TABLE sorted AS SELECT * FROM plain ORDER BY c COLLATE NOCASE, b;"
    yield (
        "SELECT count(*), sum(place) FROM"
        " (SELECT row_number() OVER (PARTITION BY a%9 ORDER BY c, b) AS place FROM sorted);"
    )
    yield "VACUUM; PRAGMA integrity_check;"
    for table in ("plain", "keyed", "texts", "sorted"):
        yield f"SELECT '{table}', count(*), sum(b), min(a), max(a) FROM {table};"


def script(rows: int) -> Path:
    def write(path: Path) -> None:
        path.write_text("\n".join(statements(rows)) + "\n")

    return cached("sqlite.sql", write, Path(__file__), rows)


def inputs(bench: Bench) -> Path:
    return script(bench.count(ROWS))


def run(bench: Bench) -> Outcome:
    source = inputs(bench)
    usage, output = bench.run("sqlite3", "-bail", "-batch", ":memory:", stdin=source)
    with source.open() as lines:
        count = sum(len(re.findall(";$|; ", line)) for line in lines)
    return Outcome(usage, count, digest(output))


SCRIPT = Script("sqlite", __doc__, {"sqlite3": "sqlite3"}, run, inputs)

if __name__ == "__main__":
    main(SCRIPT)
