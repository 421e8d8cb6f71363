"""Git, its object store and its transports."""

from __future__ import annotations

import random

from .launcher import DebianPackages, Launcher, Sides, digest

COMMITS = 250
FILES = 40
IDENTITY = {
    "GIT_AUTHOR_NAME": "A. Author",
    "GIT_AUTHOR_EMAIL": "author@example.org",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "A. Author",
    "GIT_COMMITTER_EMAIL": "author@example.org",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def history() -> bytes:
    """A stream for `git fast-import`: many commits that edit long text files."""
    chance = random.Random(2)
    files = [
        [f"line {line} of file {number}" for line in range(200 + number * 20)]
        for number in range(FILES)
    ]
    stream: list[str] = []
    for commit in range(COMMITS):
        message = f"change {commit}\n" + "because\n" * chance.randrange(20)
        stream += [
            "commit refs/heads/main",
            f"committer A. Author <author@example.org> {1600000000 + commit} +0000",
            f"data {len(message)}",
            message,
        ]
        touched = range(FILES) if commit == 0 else chance.sample(range(FILES), 4)
        for number in touched:
            lines = files[number]
            for _ in range(5):
                lines[chance.randrange(len(lines))] = f"edit {chance.random()}"
            lines.insert(chance.randrange(len(lines)), f"added by {commit}")
            text = "\n".join(lines) + "\n"
            stream += [
                f"M 100644 inline folder-{number % 7}/file-{number}.txt",
                f"data {len(text)}",
                text,
            ]
    return "\n".join([*stream, "done", ""]).encode()


def test_git_imports_commits_merges_packs_and_clones_the_same_history(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("git")
    imported = history()

    def work(launcher: Launcher) -> dict[str, str]:
        def git(*arguments: str, where: str = "origin", stdin: bytes = b"") -> bytes:
            return launcher.run(
                "git", "-C", where, *arguments, stdin=stdin, environment=IDENTITY
            ).output

        git("init", "--quiet", "--initial-branch=main", "origin", where=".")
        git("fast-import", "--quiet", "--done", stdin=imported)
        git("reset", "--quiet", "--hard")

        git("switch", "--quiet", "--create", "side", "HEAD~50")
        for number in range(12):
            note = launcher.directory / "origin" / f"note-{number}.txt"
            note.write_text(f"note {number}\n" * (number * 1000 + 1))
            git("add", "--all")
            git("commit", "--quiet", "--message", f"note {number}")
        git("switch", "--quiet", "main")
        git("merge", "--quiet", "--no-edit", "side")

        git("gc", "--quiet", "--aggressive", "--prune=now")
        git("clone", "--quiet", "--no-local", "origin", "clone", where=".")
        for repository in ("origin", "clone"):
            git("fsck", "--full", "--strict", where=repository)
        launcher.check_allocator_of("git")
        return {
            "head": git("rev-parse", "HEAD", where="clone").decode(),
            "status": git("status", "--porcelain", where="clone").decode(),
            "objects": digest(git("rev-list", "--objects", "--all", where="clone")),
            "log": digest(git("log", "--patch", "--stat", "main", where="clone")),
            "blame": digest(git("blame", "folder-3/file-3.txt", where="clone")),
        }

    assert sides.agree_on(work)["status"] == ""
