"""Files of Debian's archive that this machine cannot install: sources, and packages for another
processor.

apt-get fetches them, which checks signatures, with lists of its own: those of the machine are not
changed, and any user may do it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from allod.console import Failure, run_logged

from workshop.locks import held
from workshop.packages import PackagesUnavailable, Requirement, ensure_requirements
from workshop.paths import LOGS, STATE

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = STATE / "sources"
# What the live server is made of.
SOURCE_NAMES = ("libevent", "zlib")
# Where cmake/arm64-musl.cmake looks.
MUSL_ARM64 = STATE / "musl-arm64"
UNPACKS = (Requirement("dpkg-source", "dpkg-dev"),)


def ensure_sources() -> Path:
    """The folder of the source packages, by name, with Debian's changes; fetched once."""
    with held(SOURCES.with_suffix(".lock"), "sources from Debian's archive"):
        if not SOURCES.exists():
            ensure_requirements(UNPACKS)
            with _work_for(SOURCES) as work:
                _fetch(work, "deb-src", [], ["source", *SOURCE_NAMES])
                (work / "made").mkdir()
                for name in SOURCE_NAMES:
                    (folder,) = (p for p in work.glob(f"{name}-*") if p.is_dir())
                    folder.rename(work / "made" / name)
    return SOURCES


def ensure_musl_arm64() -> Path:
    """The folder of musl for arm64, as it would be installed; fetched once."""
    with held(MUSL_ARM64.with_suffix(".lock"), "musl for arm64"):
        if not MUSL_ARM64.exists():
            with _work_for(MUSL_ARM64) as work:
                arm64 = ["APT::Architecture=arm64", "APT::Architectures=arm64"]
                _fetch(work, "deb", arm64, ["download", "musl", "musl-dev"])
                for package in work.glob("*.deb"):
                    command = [
                        "dpkg-deb",
                        "--extract",
                        str(package),
                        str(work / "made"),
                    ]
                    subprocess.run(command, check=True)
    return MUSL_ARM64


@contextmanager
def _work_for(folder: Path) -> Iterator[Path]:
    """A folder to work in; what is `made` there becomes this folder."""
    work = folder.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    yield work
    (work / "made").rename(folder)
    shutil.rmtree(work)


def _fetch(
    work: Path, kind: str, options: Sequence[str], command: Sequence[str]
) -> None:
    """Runs a command of apt-get in a folder, with what the archive has of a kind."""
    for name in ("lists", "archives"):
        (work / name / "partial").mkdir(parents=True)
    # Of equal versions, the first line's is taken. That of security updates comes last: it names
    # sources that only the main archive has.
    archives = sorted(_archives(kind), reverse=True)
    (work / "sources.list").write_text("".join(archives))
    options = [
        f"Dir::Etc::SourceList={work}/sources.list",
        "Dir::Etc::SourceParts=/nonexistent",
        f"Dir::State::lists={work}/lists",
        f"Dir::Cache={work}",
        "APT::Sandbox::User=",
        *options,
    ]
    apt_get = ["apt-get", "-q", *(word for each in options for word in ("-o", each))]
    try:
        for title, words in (
            ("looking into Debian's archive", ["update"]),
            (f"fetching {' and '.join(command[1:])}", command),
        ):
            log = LOGS / f"archive-{words[0]}.log"
            run_logged(title, [*apt_get, *words], log, directory=work)
    except Failure as failure:
        raise PackagesUnavailable(str(failure)) from failure


def _archives(kind: str) -> set[str]:
    """Lines for sources.list: the releases that this machine's packages come from."""
    if shutil.which("apt-get") is None:
        raise PackagesUnavailable(
            "this needs Debian's archive, and there is no apt-get"
        )
    targets = subprocess.run(
        [
            *("apt-get", "indextargets", "--format"),
            *("$(ORIGIN)|$(COMPONENT)|$(REPO_URI)|$(RELEASE)", "Created-By: Packages"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    signed = f"[signed-by={KEYS}] " if KEYS.exists() else ""
    known = (line.split("|") for line in targets.stdout.splitlines())
    found = {
        f"{kind} {signed}{place} {release} main\n"
        for origin, component, place, release in known
        if (origin, component) == ("Debian", "main")
    }
    if not found:
        raise PackagesUnavailable(
            "this needs Debian's archive; run apt-get update first"
        )
    return found
