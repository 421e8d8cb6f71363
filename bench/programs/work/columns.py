"""DuckDB: tables in columns are made in memory, joined, grouped, sorted and windowed.

usage: columns.py ROWS
"""

import hashlib
import sys

import duckdb

STATEMENTS = (
    "CREATE TABLE orders AS SELECT i AS id, hash(i) % 5000 AS customer,"
    " (hash(i * 7) % 1000000) / 4 AS amount, 'note ' || (hash(i * 3) % 100000) AS note"
    " FROM range({rows}) numbers(i)",
    "CREATE TABLE customers AS SELECT i AS id, 'name ' || hash(i) % 999 AS name"
    " FROM range(5000) numbers(i)",
    "SELECT name, count(*), sum(amount), max(note) FROM orders"
    " JOIN customers ON customers.id = customer GROUP BY name ORDER BY name",
    "SELECT note, count(DISTINCT customer), string_agg(id, ',' ORDER BY id)"
    " FROM orders GROUP BY note ORDER BY note",
    "SELECT sum(place * amount) FROM (SELECT amount, row_number()"
    " OVER (PARTITION BY customer ORDER BY note, id) AS place FROM orders)",
    "UPDATE orders SET note = upper(note) WHERE id % 3 = 0",
    "SELECT list_sort(list(DISTINCT note))[:9] FROM orders GROUP BY customer % 50"
    " ORDER BY min(id)",
)


def main() -> None:
    """Prints a checksum of all answers."""
    connection = duckdb.connect(config={"threads": 1})
    answers = hashlib.sha256()
    for statement in STATEMENTS:
        rows = connection.execute(statement.format(rows=int(sys.argv[1]))).fetchall()
        answers.update(repr(rows).encode())
    print(answers.hexdigest())


if __name__ == "__main__":
    main()
