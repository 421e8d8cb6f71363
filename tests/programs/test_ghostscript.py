"""Ghostscript: the PostScript interpreter, rasteriser and PDF writer."""

from __future__ import annotations

import pytest

from bench.programs import ghostscript

from .launcher import DebianPackages, Launcher, Sides, digests

PAGES = 5


@pytest.mark.slow
def test_ghostscript_renders_the_same_pages_in_threads_and_through_pdf(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("ghostscript", "fonts-urw-base35")

    def work(launcher: Launcher) -> dict[str, str]:
        def render(source: object, name: str, *options: str) -> None:
            launcher.run(
                *("gs", "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE", *options),
                *(f"-sOutputFile={name}", str(source)),
            )

        source = launcher.directory / "pages.ps"
        ghostscript.write(source, PAGES)
        threads = ("-dNumRenderingThreads=2", "-dBandBufferSpace=500000")
        render(source, "page%02d.png", "-sDEVICE=png16m", "-r100")
        render(source, "thread%02d.png", "-sDEVICE=png16m", "-r100", *threads)
        render(source, "pages.pdf", "-sDEVICE=pdfwrite")
        render("pages.pdf", "pdf%02d.png", "-sDEVICE=pngalpha", "-r50")
        launcher.check_allocator_of("gs")
        return digests(launcher.directory, "*.png")

    assert len(sides.agree_on(work)) == 3 * PAGES
