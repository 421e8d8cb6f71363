"""MariaDB: four clients work on databases of their own, each served by a thread.

The tables are in memory. Statements come one by one, as from an application that prepares
none.
"""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.programs.common import Bench, Outcome, Script, cached, main, tool
from bench.programs.inputs import sources
from bench.programs.process import digest
from bench.programs.sockets import wait_until_listening

CLIENTS = 4
ROWS = 12_000
SIZE = "1073741824"


def statements(client: int, rows: int) -> Iterator[str]:
    """What a client sends."""
    yield f"CREATE DATABASE shop{client}; USE shop{client};"
    yield from (f"{statement};" for statement in sources.tables(client, rows))


def write(path: Path, rows: int) -> None:
    """Every client's statements, a file each."""
    path.mkdir()
    for client in range(CLIENTS):
        text = "\n".join(statements(client, rows))
        (path / str(client)).write_text(f"{text}\n")


def inputs(bench: Bench) -> Path:
    """The statements of all clients."""
    rows = bench.count(ROWS)
    depends = (Path(__file__), Path(sources.__file__), rows)
    return cached("mariadb", lambda path: write(path, rows), *depends)


def run(bench: Bench) -> Outcome:
    """Starts the server, and measures it from the first statement to the last answer."""
    folder, path = inputs(bench), bench.directory / "socket"
    data = bench.directory / "data"
    data.mkdir()
    user = ("--user=root",) if os.geteuid() == 0 else ()

    def use(client: int) -> bytes:
        command = ("mariadb", "--no-defaults", f"--socket={path}", "--batch")
        sent = (folder / str(client)).read_bytes()
        return tool(*command, directory=bench.directory, stdin=sent).encode()

    with bench.start(
        *("mariadbd", "--no-defaults", *user, f"--datadir={data}", f"--socket={path}"),
        *("--skip-grant-tables", "--skip-networking", "--skip-log-bin"),
        *("--skip-innodb", "--default-storage-engine=MEMORY", f"--tmpdir={data}"),
        *(f"--max-heap-table-size={SIZE}", f"--tmp-table-size={SIZE}"),
        *("--group-concat-max-len=10000", f"--pid-file={data / 'pid'}"),
    ) as server:
        wait_until_listening(server, path)
        with ThreadPoolExecutor(CLIENTS) as pool, server.measuring():
            answers = list(pool.map(use, range(CLIENTS)))
        usage = server.stop()
    shutil.rmtree(data)
    return Outcome(usage, CLIENTS * bench.count(ROWS), digest(*answers))


SCRIPT = Script(
    "mariadb",
    __doc__,
    {"mariadbd": "mariadb-server-core", "mariadb": "mariadb-client-core"},
    run,
    inputs,
)

if __name__ == "__main__":
    main(SCRIPT)
