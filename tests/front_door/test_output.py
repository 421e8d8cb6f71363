"""What `./allod` writes is whole, and is said where it cannot be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from allod import files
from allod.console import Failure
from commands import ALLOD, allod

# Output that goes nowhere


@pytest.mark.parametrize(
    "words", [["help"], ["run", "--help"], ["--version"], ["test", "--list-groups"]]
)
def test_a_full_disk_behind_the_output_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [ALLOD, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "allod: error: standard output: No space left on device\n"


def test_nobody_who_reads_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [ALLOD, "help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_messages_that_nobody_takes_change_nothing() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([ALLOD, "bulid"], stderr=full, check=False)
    assert done.returncode == 2


# Files that are written


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk without room, in which files can be made."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        (folder / "fill").write_bytes(bytes(16 << 10))
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_file_that_is_written_is_whole_or_as_it_was(full_disk: Path) -> None:
    with pytest.raises(Failure, match=r"cannot write .*new: No space left on device"):
        files.write_whole(full_disk / "new", "x")
    (full_disk / "fill").write_text("old")
    before = set(os.listdir(full_disk))
    with pytest.raises(Failure, match="No space left"):
        files.write_whole(full_disk / "fill", bytes(32 << 10))
    assert (full_disk / "fill").read_text() == "old"
    assert set(os.listdir(full_disk)) == before


def test_a_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="Is a directory"):
        files.write_whole(tmp_path, "x")
    with pytest.raises(Failure, match=r"cannot write .*gone/x: No such file"):
        files.write_whole(tmp_path / "gone" / "x", "x")
    with pytest.raises(Failure, match="No space left"):
        files.write_whole(Path("/dev/full"), "x")


def test_a_file_keeps_its_mode_and_the_links_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    files.write_whole(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_a_profile_that_cannot_be_written_is_kept(
    full_disk: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    done = allod(
        *("run", "--profile", "--interval", "2", "--output", full_disk / "x"),
        *("--", "ls"),
        environment={"TMPDIR": str(kept)},
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (folder,) = kept.glob("allod-profile-*")
    assert done.stderr.splitlines()[-1] == (
        f"allod: error: cannot write {full_disk}/x.pb.gz: No space left on device;"
        f" what the library wrote is kept in {folder}, and allod diff reads it"
    )
    assert os.listdir(full_disk) == ["fill"]
    (profile, *_) = sorted(folder.iterdir())
    assert allod("diff", profile, profile).returncode == 0
