"""git packs a generated repository anew, as `git repack -a -d -f` does.

The packing itself is measured, without the process that starts it. One thread searches
for deltas, so that every run finds the same ones.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.programs.common import Bench, Outcome, Script, cached, main, tool
from bench.programs.process import digest

COMMITS = 1500
FILES = 60
QUIET = {"GIT_CONFIG_NOSYSTEM": "1"}


def history(commits: int) -> Iterator[str]:
    """A stream for `git fast-import`: every commit edits a few long text files."""
    chance = Random(8)
    files = [
        [f"line {n} of {name}" for n in range(200 + 12 * name)] for name in range(FILES)
    ]
    for commit in range(commits):
        message = f"change {commit}\n"
        yield "commit refs/heads/main"
        yield f"committer A <a@example.org> {1_700_000_000 + commit} +0000"
        yield f"data {len(message)}\n{message}"
        for name in chance.sample(range(FILES), FILES if commit == 0 else 3):
            lines = files[name]
            for _ in range(4):
                lines[chance.randrange(len(lines))] = f"changed to {chance.random()}"
            lines.insert(chance.randrange(len(lines)), f"added by change {commit}")
            text = "\n".join(lines) + "\n"
            yield f"M 100644 inline folder{name % 9}/file{name}.txt"
            yield f"data {len(text)}\n{text}"
    yield "done\n"


def make(path: Path, commits: int) -> None:
    tool(
        "git",
        "init",
        "--quiet",
        "--bare",
        path,
        directory=path.parent,
        environment=QUIET,
    )
    stream = "\n".join(history(commits)).encode()
    command = ("git", "fast-import", "--quiet", "--done")
    tool(*command, directory=path, stdin=stream, environment=QUIET)


def inputs(bench: Bench) -> Path:
    count = bench.count(COMMITS)
    return cached(
        "repository.git", lambda path: make(path, count), Path(__file__), count
    )


def run(bench: Bench) -> Outcome:
    repository = inputs(bench)
    usage, output = bench.run(
        *("git", f"--git-dir={repository}", "-c", "safe.directory=*", "pack-objects"),
        *("--all", "--no-reuse-delta", "--delta-base-offset", "--window=40"),
        *("--threads=1", "--quiet", "--stdout"),
        environment=QUIET,
    )
    with output.open("rb") as pack:
        objects = int.from_bytes(pack.read(12)[8:], "big")
    return Outcome(usage, objects, digest(output))


SCRIPT = Script("git", __doc__, {"git": "git"}, run, inputs)

if __name__ == "__main__":
    main(SCRIPT)
