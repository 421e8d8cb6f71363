"""Fixtures of the live page's tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from workshop.build import ensure_live_built
from workshop.packages import PackagesUnavailable

from .watched import Watched, watched

Serve = Callable[..., AbstractContextManager[Watched]]


@pytest.fixture(scope="session")
def liballod_live() -> Path:
    """The library that serves the page."""
    try:
        return ensure_live_built()
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def clean() -> dict[str, str]:
    """This process's environment without any option of Allod's."""
    return {k: v for k, v in os.environ.items() if not k.startswith("ALLOD_")}


@pytest.fixture
def serve(
    liballod: Path,
    liballod_live: Path,
    build_dir: Path,
    tmp_path: Path,
    clean: dict[str, str],
) -> Serve:
    """serve("program", "argument", ..., profile="4096") runs a program with a page; without a
    program, the service of service.cpp."""

    def make(*command: str | Path, **options: Any) -> AbstractContextManager[Watched]:
        program = command or (build_dir / "tests" / "live_service",)
        return watched(program, (liballod_live, liballod), tmp_path, clean, **options)

    return make


def sample_all(process: Watched) -> None:
    """From now on, every allocation is a sample."""
    assert process.ask("/api/sampling?interval=1", method="POST").status == 200


@pytest.fixture
def service(serve: Serve) -> Iterator[Watched]:
    """The service, with every allocation sampled."""
    with serve(profile="0") as process:
        sample_all(process)
        yield process
