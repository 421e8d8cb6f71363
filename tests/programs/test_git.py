"""Git, its object store and its transports."""

from __future__ import annotations

from bench.programs.git import history

from .launcher import DebianPackages, Launcher, Sides, digest

COMMITS = 250
IDENTITY = {
    "GIT_AUTHOR_NAME": "A. Author",
    "GIT_AUTHOR_EMAIL": "author@example.org",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "A. Author",
    "GIT_COMMITTER_EMAIL": "author@example.org",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def test_git_imports_commits_merges_packs_and_clones_the_same_history(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("git")
    imported = "\n".join(history(COMMITS)).encode()

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
            "blame": digest(git("blame", "folder3/file3.txt", where="clone")),
        }

    assert sides.agree_on(work)["status"] == ""
