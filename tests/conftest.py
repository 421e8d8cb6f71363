"""What every test can ask for: the products, the way to preload them, Debian packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from allod import supplies
from allod.console import Failure
from clone.supplies import Clone
from long_runs import leave_out
from surface.black_box import Runner
from workshop import paths
from workshop.build import PRESETS, ensure_built
from workshop.environment import ensure_browser
from workshop.packages import PackagesUnavailable, ensure_packages

DebianPackages = Callable[..., None]
ControlGroup = Callable[[int], Path]


# What is tested in this process takes from the clone, as it does behind the front door.
supplies.use(Clone())


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the program that disturbs the profiler goes on."""
    parser.addoption(
        "--seconds",
        type=int,
        default=5,
        help="how long tests/live/test_stress.py keeps its program going (default: 5)",
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves the long ones out of runs that do not name their folder."""
    leave_out(config, items)


@pytest.fixture(scope="session")
def build_dir() -> Path:
    """The release build's folder; the programs built for tests are in its tests/."""
    return paths.build_dir("release")


@pytest.fixture(scope="session")
def liballod(build_dir: Path) -> Path:
    """The library that replaces malloc."""
    return _present(build_dir / "liballod.so")


@pytest.fixture(scope="session")
def liballod_debug(build_dir: Path) -> Path:
    """The library that replaces malloc and finds the program's errors."""
    return _present(build_dir / "liballod-debug.so")


@pytest.fixture(scope="session")
def liballod_hardened(build_dir: Path) -> Path:
    """The library that replaces malloc and guards against attacks."""
    return _present(build_dir / "liballod-hardened.so")


@pytest.fixture(scope="session")
def clang_build() -> Path:
    """The folder of a build with clang."""
    ensure_built(PRESETS["clang"], tests=True)
    return paths.build_dir("clang")


@pytest.fixture(params=["liballod", "liballod_debug", "liballod_hardened"])
def library(request: pytest.FixtureRequest) -> Path:
    """Each of the preloadable libraries, on which every case has to hold."""
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def programs(request: pytest.FixtureRequest, build_dir: Path) -> Path:
    """The folder of the programs that belong to a folder of tests."""
    return build_dir / "tests" / request.path.parent.name


@pytest.fixture
def preloaded(library: Path, programs: Path, tmp_path: Path) -> Runner:
    """Runs programs of the folder on each of the preloadable libraries."""
    return Runner(library, programs, tmp_path)


@pytest.fixture
def release(liballod: Path, programs: Path, tmp_path: Path) -> Runner:
    """Runs programs of the folder on the default library."""
    return Runner(liballod, programs, tmp_path)


@pytest.fixture
def debug(liballod_debug: Path, programs: Path, tmp_path: Path) -> Runner:
    """Runs programs of the folder on the debug library."""
    return Runner(liballod_debug, programs, tmp_path)


@pytest.fixture
def hardened(liballod_hardened: Path, programs: Path, tmp_path: Path) -> Runner:
    """Runs programs of the folder on the hardened library."""
    return Runner(liballod_hardened, programs, tmp_path)


@pytest.fixture(scope="session")
def debian_packages() -> DebianPackages:
    """debian_packages("redis-server") installs what is missing, or skips the test."""

    def need(*names: str) -> None:
        try:
            ensure_packages(names)
        except PackagesUnavailable as reason:
            pytest.skip(str(reason))

    return need


@pytest.fixture
def control_group() -> Iterator[ControlGroup]:
    """control_group(bytes) makes a group that may have so much memory, or skips the test."""
    made: list[Path] = []

    def make(limit: int) -> Path:
        root, name = _memory_controller()
        group = root / f"allod-test-{uuid4().hex[:12]}"
        try:
            group.mkdir()
            made.append(group)
            (group / name).write_text(str(limit))
            if (group / "memory.swap.max").exists():
                (group / "memory.swap.max").write_text("0")
        except OSError as error:
            pytest.skip(f"cannot make a control group: {error.strerror}")
        return group

    yield make
    for group in made:
        with suppress(OSError):
            group.rmdir()


def _memory_controller() -> tuple[Path, str]:
    """Where groups that control memory are made, of either version, and the file for the limit."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    for _, root, kind, options, *_ in mounts:
        if kind == "cgroup" and "memory" in options.split(","):
            return Path(root), "memory.limit_in_bytes"
        controllers = Path(root) / "cgroup.subtree_control"
        if kind == "cgroup2" and "memory" in controllers.read_text().split():
            return Path(root), "memory.max"
    pytest.skip("no control groups control memory here")


def _present(product: Path) -> Path:
    if not product.exists():
        pytest.fail(f"{product} is not there: run ./allod build", pytrace=False)
    return product


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium."""
    try:
        ensure_packages(["chromium"])
        ensure_browser()
    except (PackagesUnavailable, Failure) as reason:
        pytest.skip(str(reason))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield started
        started.close()
