"""Peers are built from what the recipes pin, work, and are left out where they do not."""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from workshop.packages import PackagesUnavailable

from bench.compare import packages, peers
from bench.peers import builder, crates, recipes
from bench.peers.recipes import Recipe, RecipeError

# An allocator of few lines: hands out memory one after another and takes none back.
TINY = r"""
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
enum { kHeader = 16 };
static char* memory;
static size_t used;

static void* take(size_t alignment, size_t size) {
  const size_t all = (size_t)1 << 30;
  if (memory == NULL) {
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char* mapped = mmap(NULL, all, PROT_READ | PROT_WRITE, how, -1, 0);
    char* none = NULL;
    if (!__atomic_compare_exchange_n(&memory, &none, mapped, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
      munmap(mapped, all);
    }
  }
  alignment = alignment < kHeader ? kHeader : alignment;
  const size_t room = size + kHeader + alignment;
  const size_t begin = __atomic_fetch_add(&used, room, __ATOMIC_RELAXED);
  if (begin + room > all) { return NULL; }
  const uintptr_t after = (uintptr_t)memory + begin + kHeader;
  char* block = (char*)((after + alignment - 1) / alignment * alignment);
  memcpy(block - sizeof(size), &size, sizeof(size));
  return block;
}

EXPORT size_t malloc_usable_size(void* block) {
  size_t size = 0;
  if (block != NULL) { memcpy(&size, (char*)block - sizeof(size), sizeof(size)); }
  return size;
}
EXPORT void* malloc(size_t size) { return take(kHeader, size); }
EXPORT void free(void* block) { (void)block; }
EXPORT void* calloc(size_t count, size_t size) { return take(kHeader, count * size); }
EXPORT void* memalign(size_t alignment, size_t size) { return take(alignment, size); }
EXPORT void* aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
EXPORT int posix_memalign(void** block, size_t alignment, size_t size) {
  *block = take(alignment, size);
  return *block == NULL ? ENOMEM : 0;
}
#ifdef WITH_REALLOC
EXPORT void* realloc(void* old, size_t size) {
  void* block = take(kHeader, size);
  const size_t before = malloc_usable_size(old);
  if (block != NULL && old != NULL) { memcpy(block, old, before < size ? before : size); }
  return block;
}
#endif
"""


def a_recipe(name: str = "tiny", **keys: Any) -> Recipe:
    basic = {
        "version": "1.0",
        "licence": "MIT",
        "crate": "tiny-sys",
        "crate-version": "0.1.0+1.0",
        "sha256": "0",
    }
    return Recipe(name, {**basic, **keys})


def plain(**keys: Any) -> Recipe:
    definitions = {"WITH_REALLOC": "1"}
    return a_recipe(folder="c", sources=["*.c"], definitions=definitions, **keys)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(builder, "CACHE", tmp_path / "peers")
    return tmp_path / "peers"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the tiny allocator, which stands for what cargo has fetched."""
    path = tmp_path / "registry" / "cache" / "index" / "tiny-sys-0.1.0+1.0.crate"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("tiny-sys-0.1.0+1.0/c/tiny.c")
        entry.size = len(TINY)
        archive.addfile(entry, io.BytesIO(TINY.encode()))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path))
    return path


def pinned(recipe: Recipe, package: Path) -> Recipe:
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    return Recipe(recipe.name, {**recipe.keys, "sha256": digest})


# Recipes.


def test_every_known_peer_can_be_had_in_one_way() -> None:
    assert len(set(peers.KNOWN)) == len(peers.KNOWN)
    assert set(peers.QUICK) <= set(peers.DEFAULT) <= set(peers.KNOWN)
    built = set(recipes.load())
    everyone = {*peers.KNOWN, *peers.WITH_PROFILERS}
    assert len(everyone) == len(peers.KNOWN) + len(peers.WITH_PROFILERS)
    assert built < everyone
    for name in everyone - built:
        try:
            assert peers.find(name).name == name
        except peers.PeerError as missing:
            assert "not installed" in str(missing) or name == peers.SUBJECT


def test_a_recipe_takes_the_rest_from_the_one_it_is_like() -> None:
    found = recipes.load()
    base, secure = found["mimalloc3"], found["mimalloc-secure"]
    assert secure.version == base.version
    assert secure.keys["sources"] == base.keys["sources"]
    added = {"MI_SECURE": "4"}
    assert secure.keys["definitions"] == {**base.keys["definitions"], **added}
    assert found["snmalloc-checked"].library != found["snmalloc"].library


def test_the_libraries_of_recipes_can_be_preloaded() -> None:
    # The loader divides a list of libraries at spaces and colons.
    for recipe in recipes.load().values():
        assert re.fullmatch(r"[\w.+-]+", recipe.folder_name)
        assert re.fullmatch(r"[0-9a-f]{64}", recipe.keys["sha256"])


def test_the_hardened_library_is_a_peer_with_any_of_its_measures() -> None:
    assert {"canary", "zero", "tags", "light", "all"} <= {*peers.measures()}
    for chosen in ("none", "zero,guards", "all,-canary", "-written", "balanced"):
        assert peers.is_known(f"allod-hardened+{chosen}")
    for wrong in ("allod-hardened+", "allod-hardened+zeros", "allod+zero"):
        assert not peers.is_known(wrong)


def test_measures_are_chosen_by_the_environment() -> None:
    try:
        found = peers.find("allod-hardened+zero,guards")
    except peers.PeerError as error:
        pytest.skip(str(error))
    assert found.variables == (("ALLOD_HARDENED", "zero,guards"),)
    assert found.library == peers.find("allod-hardened").library


def test_the_readme_names_what_the_recipes_pin() -> None:
    rows = dict(
        re.findall(
            r"^\| `(\S+)` \| (.*)$", (recipes.HERE / "README.md").read_text(), re.M
        )
    )
    assert set(rows) == {*peers.KNOWN, *peers.WITH_PROFILERS} - set(peers.OURS)
    for name, recipe in recipes.load().items():
        row = rows[name]
        assert recipe.keys["licence"] in row
        if "same crate" not in row:
            version = recipe.crate_version.partition("+")[0]
            assert f"crate {recipe.crate} {version} " in row


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a", "Expected"),
        ('[a]\nlike = "b"', "a is like b, which is no recipe of its own"),
        ('[a]\nversion = "1"', "a does not say its licence"),
        (
            '[a]\nversion = "1"\nlicence = "MIT"\ncrate = "c"\ncrate-version = "1"\n'
            'sha256 = "0"\nsteps = []',
            "a needs either steps and library, or sources",
        ),
    ],
)
def test_a_recipe_that_is_not_complete_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "recipes.toml"
    file.write_text(text)
    with pytest.raises(RecipeError, match=message):
        recipes.load(file)


def test_the_commands_name_the_folder_the_jobs_and_the_keys(tmp_path: Path) -> None:
    step = ["make", "-C", "{source}", "-j{jobs}", "{target}"]
    recipe = a_recipe(folder="c", steps=[step], target="all", library="{target}.so")
    assert recipe.steps(tmp_path, 3) == [["make", "-C", f"{tmp_path}/c", "-j3", "all"]]
    assert recipe.library == "all.so"


def test_sources_are_found_by_pattern(tmp_path: Path) -> None:
    for name in ("b.c", "a.c", "a_test.c", "sub/c.cc", "sub/not.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    recipe = a_recipe(sources=["b.c", "*.c", "**/*.cc"], without="_test")
    configure = recipe.steps(tmp_path, 1)[0]
    sources = next(part for part in configure if part.startswith("-DSOURCES="))
    expected = ";".join(f"{tmp_path}/{name}" for name in ("b.c", "a.c", "sub/c.cc"))
    assert sources == f"-DSOURCES={expected}"
    with pytest.raises(RecipeError, match=r"tiny-sys has no \*\.S"):
        a_recipe(sources=["*.S"]).steps(tmp_path, 1)


def test_the_cache_tells_recipes_apart() -> None:
    one = plain()
    names = {
        recipe.folder_name
        for recipe in (one, plain(flags=["-O2"]), plain(**{"crate-version": "0.1.1"}))
    }
    assert len(names) == 3
    assert plain().folder_name == one.folder_name
    assert one.folder_name.startswith("tiny-1.0-")


# Building.


def test_a_peer_is_built_once_and_takes_over_malloc(cache: Path, package: Path) -> None:
    recipe = pinned(plain(), package)
    said: list[str] = []
    assert builder.cached(recipe) is None
    built = builder.build(recipe, said.append)
    assert built == builder.cached(recipe)
    assert built.library.is_file()
    assert re.fullmatch(r"1\.0 \(tiny-sys 0\.1\.0, (gcc|clang) [\d.]+\)", built.version)
    about = json.loads((built.library.parent / "about.json").read_text())
    assert about["recipe"] == recipe.keys
    assert [line for line in said if line.startswith("built tiny 1.0 in")]
    left = {path.name for path in cache.iterdir()}
    assert left == {".lock", recipe.folder_name}

    said.clear()
    assert builder.build(recipe, said.append) == built
    assert said == []

    built.library.unlink()
    assert builder.cached(recipe) is None
    assert builder.build(recipe, said.append) == built
    assert built.library.is_file()


def test_a_library_that_takes_over_a_part_of_malloc_is_no_peer(
    cache: Path, package: Path
) -> None:
    recipe = pinned(a_recipe(folder="c", sources=["*.c"]), package)
    with pytest.raises(builder.BuildError, match="cannot be built"):
        builder.build(recipe, print)
    assert builder.cached(recipe) is None


def test_a_failing_build_is_reported_with_its_log_and_left_out(
    cache: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ["sh", "-c", "echo all well; echo 'tiny.c:1: error: no semicolon'; exit 2"]
    recipe = pinned(a_recipe(steps=[step], library="tiny.so"), package)
    monkeypatch.setattr(peers, "_RECIPES", {"tiny": recipe})
    monkeypatch.setattr(builder, "ensure_tools", lambda: None)
    said: list[str] = []
    peers.install_missing(["tiny"], said.append)
    log = builder.failure_log(recipe)
    assert said[-1] == (
        f"tiny cannot be built: sh: tiny.c:1: error: no semicolon; log: {log}"
    )
    assert "all well" in log.read_text()
    with pytest.raises(peers.PeerError, match="cannot be built: sh: tiny.c:1: error"):
        peers.find("tiny")
    assert {path.name for path in cache.iterdir()} == {".lock", "failed"}


def test_a_build_that_hangs_is_ended(
    cache: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "LIMIT_SECONDS", 0.1)
    monkeypatch.setattr(builder, "PROGRESS_SECONDS", 0.1)
    recipe = pinned(a_recipe(steps=[["sleep", "1000"]], library="no.so"), package)
    with pytest.raises(builder.BuildError, match="not done after"):
        builder.build(recipe, print)


def test_what_differs_from_the_pinned_package_is_not_built(
    cache: Path, package: Path
) -> None:
    with pytest.raises(builder.BuildError, match="is not what the recipe pins"):
        builder.build(plain(), print)


def test_cargo_is_asked_for_one_package(tmp_path: Path, package: Path) -> None:
    recipe = pinned(plain(), package)
    hidden = package.rename(tmp_path / "elsewhere")
    asked: list[list[str]] = []

    def cargo(command: Sequence[str], folder: Path) -> None:
        asked.append(list(command))
        hidden.rename(package)

    assert crates.fetch(recipe, cargo) == package
    assert asked == [["cargo", "info", "tiny-sys@0.1.0"]]
    assert crates.fetch(recipe, cargo) == package
    assert len(asked) == 1


def test_a_package_that_cargo_does_not_bring_is_an_error(
    package: Path,
) -> None:
    recipe = pinned(plain(), package)
    package.unlink()
    with pytest.raises(crates.CrateError, match=r"cargo fetched no tiny-sys 0\.1\.0"):
        crates.fetch(recipe, lambda command, folder: None)


def test_nothing_is_built_without_leave(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_RECIPES", {"tiny": plain()})
    with pytest.raises(peers.PeerError, match="not built"):
        peers.find("tiny")
    assert not cache.exists()


def test_a_package_that_cannot_be_installed_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(names: Sequence[str]) -> None:
        reason = f"cannot install {' '.join(names)}: no network"
        raise PackagesUnavailable(reason)

    wanted = peers._Packaged("no-such-package", "libnone.so")
    monkeypatch.setattr(peers, "_PACKAGED", {"none": wanted})
    monkeypatch.setattr(packages, "install", refuse)
    said: list[str] = []
    peers.install_missing(["none"], said.append)
    assert said == ["cannot install no-such-package: no network"]
    with pytest.raises(peers.PeerError, match="no-such-package is not installed"):
        peers.find("none")


# The real ones, as far as they are on this machine.


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("probe") / "probe"
    compile_probe = ["cc", "-O1", "-pthread", "-o", str(program), str(builder.PROBE)]
    subprocess.run([*compile_probe, "-ldl"], check=True)
    return program


@pytest.mark.parametrize("name", [name for name in peers.KNOWN if name != "glibc"])
def test_a_peer_serves_a_small_program(name: str, probe: Path) -> None:
    try:
        peer = peers.find(name)
    except peers.PeerError as missing:
        pytest.skip(str(missing))
    assert peer.version
    assert peer.library is not None
    assert builder.probe(peer.library, probe, dict(peer.variables)) is None


def test_what_is_not_preloaded_is_noticed(probe: Path, tmp_path: Path) -> None:
    library = tmp_path / "text.so"
    library.write_text("no library")
    assert "cannot be preloaded" in (builder.probe(library, probe, {}) or "")
