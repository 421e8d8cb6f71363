"""The crates for Rust: packed as for a registry, unpacked, and tested there with nothing else of
this clone at hand."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

import pytest
from workshop.crates import CRATES, RUST, TARGET, CargoUnavailable, cargo, make_crates
from workshop.paths import ROOT, version

pytestmark = pytest.mark.slow

WORK = TARGET / "unpacked"
# All takes half the time to compile then, and this is no measurement.
QUICKLY = {
    "CXXFLAGS": "-O1 -g0",
    "CARGO_PROFILE_DEV_DEBUG": "0",
    "CARGO_INCREMENTAL": "0",
}
WORKSPACE = """
[workspace]
members = ["allod", "allod-sys", "suite"]
resolver = "2"

[patch.crates-io]
allod-sys = { path = "allod-sys" }
"""


def succeeds(*arguments: str, directory: Path = WORK, **environment: str) -> str:
    """What cargo prints when it works, which it must."""
    done = cargo(*arguments, directory=directory, **QUICKLY, **environment)
    assert done.returncode == 0, done.stdout
    return done.stdout


def copy(source: Path, target: Path) -> None:
    """Makes a folder equal to another, and leaves equal files alone: cargo goes by times."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    for old in [path for path in target.rglob("*") if path.is_file()]:
        if old.relative_to(target) not in wanted:
            old.unlink()
    for name in wanted:
        contents, place = (source / name).read_bytes(), target / name
        if not place.exists() or place.read_bytes() != contents:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(contents)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names of the files in each package, which lie unpacked in WORK."""
    scratch = tmp_path_factory.mktemp("packages")
    try:
        archives = make_crates(scratch)
    except CargoUnavailable as reason:
        pytest.skip(str(reason))
    files = {}
    for name, archive in zip(CRATES, archives, strict=True):
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
            files[name] = {
                str(Path(*Path(member).parts[1:])) for member in packed.getnames()
            }
        copy(scratch / f"{name}-{version()}", WORK / name)
    copy(RUST / "suite", WORK / "suite")
    (WORK / "Cargo.toml").write_text(WORKSPACE)
    shutil.copy(RUST / "Cargo.lock", WORK / "Cargo.lock")
    return files


def test_the_packages_hold_what_is_compiled_and_no_more(
    packages: dict[str, set[str]],
) -> None:
    lists = (ROOT / "CMakeLists.txt").read_text()
    sources = set(re.findall(r"^  (src/\S+\.cpp)\b", lists, re.MULTILINE))
    assert len(sources) > 50
    assert {f"source/{name}" for name in sources} <= packages["allod-sys"]
    for files in packages.values():
        assert {"LICENSE", "README.md", "Cargo.toml", "src/lib.rs"} <= files
        assert [name for name in files if name.startswith("target")] == []


def test_the_crates_pass_their_tests_and_other_crates_pass_theirs_on_allod(
    packages: dict[str, set[str]],
) -> None:
    printed = succeeds(
        *("test", "--workspace", "--locked", "--offline", "--quiet"),
        *("--features", "allod/stats,allod/profiling"),
    )
    counts = [int(count) for count in re.findall(r"ok\. (\d+) passed", printed)]
    # Those of bytes are the most.
    assert sum(counts) > 800, printed


def test_the_hardened_library_serves_a_whole_process(
    packages: dict[str, set[str]],
) -> None:
    succeeds(
        *("test", "--package", "allod", "--locked", "--offline", "--quiet"),
        *("--test", "global", "--test", "mistakes", "--features", "hardened,override"),
    )


def test_documentation_has_no_warnings(packages: dict[str, set[str]]) -> None:
    succeeds(
        *("doc", "--no-deps", "--locked", "--offline", "--quiet"),
        *("--package", "allod", "--package", "allod-sys"),
        *("--features", "allod/stats,allod/profiling"),
        RUSTDOCFLAGS="-Dwarnings",
    )


def test_the_sources_are_formatted() -> None:
    if shutil.which("cargo-fmt") is None:
        pytest.skip("rustfmt is missing")
    for folder in (RUST, RUST / "compare"):
        succeeds("fmt", "--all", "--check", directory=folder)


def test_the_crates_have_the_version_of_the_library() -> None:
    manifest = (RUST / "Cargo.toml").read_text()
    assert f'version = "{version()}"' in manifest
    depends = (RUST / "allod" / "Cargo.toml").read_text()
    assert f'"../allod-sys", version = "{version()}"' in depends
