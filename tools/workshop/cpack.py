"""Packages of systems, by cpack: .deb, .rpm and .tar.gz, of the same binaries as the wheel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from allod.console import Failure

from workshop import parts
from workshop.build import BUILD_TOOLS, building, live_options
from workshop.packages import Requirement, ensure_requirements
from workshop.systems import (
    LIBRARIES,
    WORK,
    Binaries,
    System,
    build,
    fresh,
    logged,
    separate_debug,
    strip,
    strip_archives,
)

TOOLS = {
    "DEB": (Requirement("dpkg-deb", "dpkg"),),
    "RPM": (Requirement("rpmbuild", "rpm"), Requirement("cpio", "cpio")),
    "TGZ": (),
}
# Those that have debug information in a package of its own.
WITH_DEBUG = ("DEB", "RPM")
ENDINGS = {"DEB": "*.deb", "RPM": "*.rpm", "TGZ": "*.tar.gz"}


def make_packages(system: System, kind: str, folder: Path, epoch: str) -> list[Path]:
    """Makes the packages of a kind for a system, with this time in them, and moves them to a
    folder."""
    ensure_requirements((*BUILD_TOOLS, *system.needs, *TOOLS[kind]))
    with building(f"dist-{system.name}"):
        binaries = build(system)
        place = WORK / f"{system.name}-{kind}"
        _configure(system, kind, binaries, place)
        _fill(system, kind, binaries, place)
        return list(_pack(system, kind, place, folder, epoch))


def _configure(system: System, kind: str, binaries: Binaries, place: Path) -> None:
    """A build folder of its own has the layout of the packages. Nothing is built in it."""
    own = ["-DALLOD_BUILD_TESTS=OFF", f"-DALLOD_PACKAGE={kind}"]
    own += [f"-DALLOD_LICENCES={place / parts.FILE}"]
    debug = place / "debug" if kind in WITH_DEBUG else ""
    own += [f"-DALLOD_DEBUG_FILES={debug}"]
    own += [f"-DALLOD_PROGRAMS={binaries.programs}", *live_options(system.preset)]
    logged(
        f"configuring {kind} packages of {system.name}",
        *("cmake", "--preset", system.preset, "-B", str(place), *own),
    )


def _fill(system: System, kind: str, binaries: Binaries, place: Path) -> None:
    """Puts what was built elsewhere where an installation takes it from."""
    stripped = fresh(place / "stripped")
    strip(system, binaries, stripped)
    for name in LIBRARIES:
        (link,) = {os.readlink(binaries.libraries / name)}
        (whole,) = {os.readlink(binaries.libraries / link)}
        shutil.move(stripped / name, place / whole)
        for each, target in ((link, whole), (name, link)):
            (place / each).unlink(missing_ok=True)
            (place / each).symlink_to(target)
    strip_archives(system, binaries, place)
    if kind in WITH_DEBUG:
        separate_debug(system, binaries, fresh(place / "debug"))
    (place / "include").mkdir(exist_ok=True)
    shutil.copy(binaries.libraries / "include" / "allod.hpp", place / "include")
    (place / parts.FILE).write_text(parts.licences(system))


def _pack(
    system: System, kind: str, place: Path, folder: Path, epoch: str
) -> Iterator[Path]:
    packed = fresh(place / "packed")
    logged(
        f"packing {kind} packages of {system.name}",
        *("cpack", "--config", str(place / "CPackConfig.cmake"), "-B", str(packed)),
        SOURCE_DATE_EPOCH=epoch,
    )
    made = sorted(packed.glob(ENDINGS[kind]))
    if not made:
        raise Failure(f"cpack has made no {ENDINGS[kind]} in {packed}")
    folder.mkdir(parents=True, exist_ok=True)
    for package in made:
        yield Path(shutil.move(package, folder / package.name))
