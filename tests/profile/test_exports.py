"""Exports are opened by the tools that they are for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import allod
from workshop.packages import PackagesUnavailable, ensure_packages
from workshop.paths import STATE

VERSION = "1.25.0"
DHAT_VIEWER = Path("/usr/libexec/valgrind/dh_view.html")


@pytest.fixture(scope="module")
def folder(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a profile of the known shapes, of small blocks exact to a few percent."""
    made = tmp_path_factory.mktemp("exports")
    shapes = build_dir / "tests" / "profile" / "shapes"
    words = ["run", "--profile", "--interval", "16K", "--", str(shapes)]
    result = allod(*words, directory=made)
    assert result.returncode == 0, result.stderr
    for form in ("speedscope", "dhat"):
        out = f"shapes.{form}.json"
        words = ["export", "--format", form, "--output", out, "shapes.pb.gz"]
        result = allod(*words, directory=made)
        assert result.returncode == 0, result.stderr
    return made


@pytest.fixture(scope="module")
def speedscope() -> Path:
    """Its page, which needs no server."""
    place = STATE / f"speedscope-{VERSION}"
    page = place / "node_modules" / "speedscope" / "dist" / "release" / "index.html"
    if not page.exists():
        words = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
        words += ["--prefix", str(place), f"speedscope@{VERSION}"]
        try:
            ensure_packages(["npm"])
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        except PackagesUnavailable as reason:
            pytest.skip(str(reason))
        if not page.exists():
            pytest.skip(f"npm cannot install speedscope: {done.stderr[-200:]}")
    return page


@pytest.fixture
def page(browser: Any) -> Any:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    yield context.new_page()
    context.close()


def test_speedscope_opens_one(folder: Path, speedscope: Path, page: Any) -> None:
    page.goto(speedscope.as_uri())
    page.locator("input[type=file]").set_input_files(folder / "shapes.speedscope.json")
    page.get_by_text("shapes.pb.gz, in use").first.wait_for()
    # A table of functions; the other views are drawn.
    page.get_by_text("Sandwich").click()
    row = page.locator("tr", has_text="shapes::leak").first
    row.wait_for()
    assert "MiB" in row.inner_text() or "MB" in row.inner_text()


def test_the_page_of_a_profile_shows_the_time(folder: Path, page: Any) -> None:
    page.goto((folder / "shapes.html").as_uri())
    chart = page.locator(".timeline figure", has_text="In use")
    most = chart.locator("figcaption").inner_text()
    peak = page.locator("#kinds button", has_text="at the peak").inner_text()
    assert peak.split(": ")[1] in most
    chart.locator("svg").hover()
    assert re.search(r"[\d.]+ \w+ at [\d.]+ \w+", chart.inner_text())


def test_the_viewer_of_dhat_opens_one(folder: Path, page: Any) -> None:
    try:
        ensure_packages(["valgrind"])
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(DHAT_VIEWER.as_uri())
    page.locator("input[type=file]").set_input_files(folder / "shapes.dhat.json")
    page.get_by_text("shapes.pb.gz").first.wait_for()
    shown = page.locator("body").inner_text()
    assert "shapes::leak" in shown
    assert complaints == []
