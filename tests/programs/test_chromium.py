"""Chromium without a window.

Its executable brings its own malloc (PartitionAlloc), which comes before any
preloaded one. So this shows that the library does no harm in such a program, with
its many processes and threads, and not that the library serves it.
"""

from __future__ import annotations

import shutil

import pytest

from .launcher import WORKLOADS, DebianPackages, Launcher, Sides, digest

EXECUTABLE = "/usr/lib/chromium/chromium"
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-default-apps", "--disable-sync", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=800,1000"),
    "--no-proxy-server",
)


@pytest.mark.slow
def test_chromium_renders_the_same_page_beside_its_own_allocator(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("chromium", "fonts-dejavu-core")

    def work(launcher: Launcher) -> tuple[str, str]:
        page = (WORKLOADS / "page.html").as_uri()

        def browse(profile: str, *options: str) -> str:
            directory = launcher.directory / profile
            text = launcher.run(
                *(EXECUTABLE, *OPTIONS, f"--user-data-dir={directory}"),
                *(*options, page),
            ).text
            shutil.rmtree(directory)
            return text

        document = browse("one", "--dump-dom")
        picture = launcher.directory / "page.png"
        browse("two", f"--screenshot={picture}")
        images = launcher.images_of(EXECUTABLE)
        assert len(images) > 4, "the browser has several processes"
        for image in images:
            assert image.library_mapped == launcher.preloads
            assert image.allocator == EXECUTABLE
        return document, digest(picture.read_bytes())

    document, _ = sides.agree_on(work)
    assert "<title>done</title>" in document
    assert "workers: " in document
