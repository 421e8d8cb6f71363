"""Packages of systems serve who installs them, and leave nothing behind."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checks import install, versions
from workshop.bill import bill_of, sums_of
from workshop.cpack import make_packages
from workshop.debian_root import OLDEST, STABLE, ensure_root
from workshop.packages import PackagesUnavailable
from workshop.paths import version
from workshop.release import EPOCH
from workshop.systems import LIBRARIES as LIBRARY_NAMES
from workshop.systems import SYSTEMS

pytestmark = pytest.mark.slow

HERE = SYSTEMS["x86-64"]
NAMES = ("allod", "allod-dbg", "liballod-dev", "liballod0")
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
# What a package manager keeps for itself.
KEPT = ("proc", "sys", "dev", "tmp", "run", "var/lib", "var/log", "var/cache")
# Folders that are there on a system of rpm, where other packages have them.
FOLDERS_OF_RPM = (
    *("lib/debug/.build-id", "lib64/cmake", "lib64/pkgconfig", "libexec"),
    *("share/fish/vendor_completions.d", "share/zsh/site-functions"),
    *("share/bash-completion/completions", "share/man/man1", "share/man/man7"),
)
# A program that looks at its own page.
LOOKS = """
import os, urllib.request
link = open(os.environ["ALLOD_LIVE_LINK"]).read().split()[-1]
with urllib.request.urlopen(link) as page:
    print(page.status, len(page.read()) > 10_000)
"""
MAPPED = (
    "print(sorted({l.split()[-1] for l in open('/proc/self/maps') if 'allod' in l}))"
)
COMMANDS = (
    ("allod", "--version"),
    ("allod", "run", "--hardened", "--check-copies", "--", "true"),
    ("allod", "run", "--debug", "--", "perl", "-e", "print 1"),
    ("allod", "leaks", "--", "true"),
    (
        "sh",
        "-c",
        "allod record --output /tmp/t -- ls && allod replay --rounds 1 /tmp/t",
    ),
)
DebianPackages = Callable[..., None]
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages of Debian, by name."""
    made = make_packages(HERE, "DEB", tmp_path_factory.mktemp("debs"), EPOCH)
    return {path.name.split("_")[0]: path for path in made}


@pytest.fixture(scope="module")
def unpacked(
    debs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """What each of them installs."""
    folders = {name: tmp_path_factory.mktemp(name) for name in debs}
    for name, folder in folders.items():
        subprocess.run(["dpkg-deb", "--extract", debs[name], folder], check=True)
    return folders


class Root:
    """The root of a release, with the packages at hand in /mnt."""

    def __init__(self, folder: Path, packages: Path) -> None:
        self.folder = folder
        self._packages = packages

    def run(self, *command: str, as_root: bool = False, **variables: str) -> Done:
        """Runs a command there, from a folder that an ordinary user cannot write."""
        user = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--")
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", **variables}
        settings = [word for each in variables.items() for word in ("--setenv", *each)]
        return subprocess.run(
            [
                *("bwrap", "--bind", self.folder, "/", "--proc", "/proc"),
                *("--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"),
                *("--ro-bind", self._packages, "/mnt"),
                *("--cap-add", "ALL", "--chdir", "/usr", "--clearenv", *settings),
                *(() if as_root else user),
                *command,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def files(self) -> set[str]:
        """All that is there, besides what a package manager keeps for itself."""
        found: set[str] = set()
        for folder, folders, files in os.walk(self.folder):
            within = os.path.relpath(folder, self.folder)
            folders[:] = [
                each
                for each in folders
                if os.path.normpath(f"{within}/{each}") not in KEPT
            ]
            found.update(os.path.normpath(f"{within}/{each}") for each in folders)
            found.update(os.path.normpath(f"{within}/{each}") for each in files)
        return found

    def install(self, *packages: Path) -> None:
        """Installs these; whatever they need is there."""
        done = self.run(
            *("dpkg", "--install", *(f"/mnt/{path.name}" for path in packages)),
            as_root=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def purge(self) -> None:
        """Removes all of them, installed or not."""
        done = self.run("dpkg", "--purge", *NAMES, as_root=True)
        assert done.returncode == 0, done.stdout + done.stderr


def _root(release: str, debs: dict[str, Path], need: DebianPackages) -> Root:
    need("bubblewrap")
    try:
        root = Root(ensure_root(release), debs["allod"].parent)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    root.purge()
    return root


@pytest.fixture(scope="module")
def stable(debs: dict[str, Path], debian_packages: DebianPackages) -> Iterator[Root]:
    """The stable release with all packages installed."""
    root = _root(STABLE, debs, debian_packages)
    before = root.files()
    root.install(*debs.values())
    yield root
    # Root's use of the command may compile modules.
    assert root.run("allod", "leaks", "--", "true", as_root=True).returncode == 0
    root.purge()
    assert root.files() ^ before == set()


def test_there_are_four_packages_of_debian(debs: dict[str, Path]) -> None:
    assert tuple(sorted(debs)) == NAMES
    assert {path.name.split("_", 1)[1] for path in debs.values()} == {
        f"{version()}_amd64.deb"
    }


def test_the_same_packages_are_made_again(
    debs: dict[str, Path], tmp_path: Path
) -> None:
    again = make_packages(HERE, "DEB", tmp_path, EPOCH)
    assert {path.name: path.read_bytes() for path in again} == {
        path.name: path.read_bytes() for path in debs.values()
    }


def test_each_package_has_what_belongs_into_it(unpacked: dict[str, Path]) -> None:
    has = {
        name: {str(path.relative_to(folder)) for path in folder.rglob("*")}
        for name, folder in unpacked.items()
    }
    assert {
        "usr/bin/allod",
        "usr/libexec/allod/trace-tool",
        "usr/share/man/man1/allod.1",
        "usr/share/bash-completion/completions/allod",
        "usr/share/zsh/vendor-completions/_allod",
        "usr/share/fish/vendor_completions.d/allod.fish",
    } <= has["allod"]
    assert {
        *(f"{LIBRARIES}/{name}.0" for name in LIBRARY_NAMES),
        "usr/share/man/man7/liballod.7",
        "usr/share/doc/liballod0/THIRD-PARTY-LICENCES",
    } <= has["liballod0"]
    assert {
        *(f"{LIBRARIES}/{name}" for name in LIBRARY_NAMES),
        f"{LIBRARIES}/allod.o",
        f"{LIBRARIES}/cmake/allod/allodConfig.cmake",
        *(
            f"{LIBRARIES}/pkgconfig/allod{kind}.pc"
            for kind in ("", "-static", "-prefixed", "-live")
        ),
        "usr/share/allod/allod.hpp",
        "usr/share/doc/liballod-dev/examples/pool.cpp",
    } <= has["liballod-dev"]
    for name, files in has.items():
        assert f"usr/share/doc/{name}/copyright" in files
    debug = [name for name in has["allod-dbg"] if name.endswith(".debug")]
    assert len(debug) == len(LIBRARY_NAMES)


def test_the_libraries_in_packages_load_with_glibc_2_17(
    unpacked: dict[str, Path],
) -> None:
    folder = unpacked["liballod0"] / LIBRARIES
    libraries = [path for path in folder.iterdir() if not path.is_symlink()]
    assert len(libraries) == len(LIBRARY_NAMES)
    assert [text for path in libraries for text in versions.complaints(path)] == []


@pytest.mark.parametrize(
    ("package", "origin"),
    [
        ("allod", "liballod.so"),
        ("allod-static", "program"),
        ("allod-prefixed", "libc.so"),
        ("allod-live", "liballod.so"),
    ],
)
def test_pkg_config_finds_what_the_packages_install(
    unpacked: dict[str, Path],
    package: str,
    origin: str,
    tmp_path: Path,
    debian_packages: DebianPackages,
) -> None:
    debian_packages("pkg-config")
    prefix = tmp_path / "usr"
    for name in ("liballod0", "liballod-dev"):
        command = ["cp", "--archive", f"{unpacked[name]}/usr", str(tmp_path)]
        subprocess.run(command, check=True)
    libraries = tmp_path / LIBRARIES
    installation = install.Installation(prefix, tmp_path, LIBRARIES.relative_to("usr"))
    flags = installation.run("pkg-config", "--cflags", "--libs", package).split()
    source = install.CONSUMER / "consumer.c"
    installation.run("cc", source, *flags, "-o", "program")
    assert Path(installation.run(tmp_path / "program").strip()).name.startswith(origin)
    assert libraries.exists()


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        ("python3", "-c", "from allod.profile import pprof; pprof._profile_type()"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_commands_run_for_an_ordinary_user(
    stable: Root, command: tuple[str, ...]
) -> None:
    done = stable.run(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_runs_on_the_installed_library(stable: Root) -> None:
    done = stable.run("allod", "run", "--", "python3", "-c", MAPPED)
    assert done.stdout == f"['/{LIBRARIES}/liballod.so.{version()}']\n", done.stderr
    done = stable.run("true", LD_PRELOAD="liballod.so.0", ALLOD_VERBOSE="1")
    assert "serves process" in done.stderr


def test_the_live_page_opens(stable: Root) -> None:
    done = stable.run(
        *("allod", "run", "--live", "--", "python3", "-c", LOOKS),
        ALLOD_LIVE_LINK="/tmp/link",
    )
    assert done.stdout == "200 True\n", done.stderr


@pytest.mark.parametrize(
    ("page", "has"), [("allod", "allod run"), ("liballod", "ALLOD_PURGE_DELAY")]
)
def test_manual_pages_open(stable: Root, page: str, has: str) -> None:
    done = stable.run("man", page, MANPAGER="cat", LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert has in done.stdout


def test_the_library_serves_the_oldest_release(
    debs: dict[str, Path], debian_packages: DebianPackages
) -> None:
    root = _root(OLDEST, debs, debian_packages)
    before = root.files()
    root.install(debs["liballod0"])
    done = root.run(
        *("perl", "-e", "print 'perl'"), LD_PRELOAD="liballod.so.0", ALLOD_VERBOSE="1"
    )
    root.purge()
    assert done.stdout == "perl"
    assert "serves process" in done.stderr
    assert root.files() ^ before == set()


def test_the_packages_of_rpm_have_the_same_libraries(
    unpacked: dict[str, Path], tmp_path: Path, debian_packages: DebianPackages
) -> None:
    debian_packages("rpm", "cpio")
    made = make_packages(HERE, "RPM", tmp_path / "made", EPOCH)
    names = {path.name.removesuffix(f"-{version()}-1.x86_64.rpm") for path in made}
    assert names == {"allod", "allod-debuginfo", "liballod-devel", "liballod0"}
    for package in made:
        unpack = 'rpm2cpio "$0" | cpio --extract --make-directories --quiet'
        subprocess.run(["sh", "-c", unpack, package], cwd=tmp_path, check=True)
    for name in LIBRARY_NAMES:
        one = tmp_path / "usr" / "lib64" / name
        other = unpacked["liballod0"] / LIBRARIES / f"{name}.0"
        assert one.read_bytes() == other.read_bytes()


@pytest.fixture(scope="module")
def rpm_root(
    tmp_path_factory: pytest.TempPathFactory, debian_packages: DebianPackages
) -> Iterator[Root]:
    """A root with all packages of rpm. Its programs are Debian's: rpm knows nothing of them, and is
    not asked what the packages depend on."""
    debian_packages("rpm", "bubblewrap")
    folder = tmp_path_factory.mktemp("rpm")
    made = make_packages(HERE, "RPM", folder / "packages", EPOCH)
    try:
        release = ensure_root(STABLE)
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    # The root itself is there for the packages of Debian.
    subprocess.run(["cp", "-a", release, folder / "root"], check=True)
    root = Root(folder / "root", folder / "packages")
    root.purge()
    for each in FOLDERS_OF_RPM:
        (root.folder / "usr" / each).mkdir(parents=True, exist_ok=True)
    before = root.files()
    names = [path.name.removesuffix(f"-{version()}-1.x86_64.rpm") for path in made]
    files = [f"/mnt/{path.name}" for path in made]
    rpm = ("rpm", "--nodeps")
    done = root.run(*rpm, "--install", *files, as_root=True)
    assert done.returncode == 0, done.stdout + done.stderr
    yield root
    assert root.run("allod", "leaks", "--", "true", as_root=True).returncode == 0
    done = root.run(*rpm, "--erase", *names, as_root=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert root.files() ^ before == set()
    subprocess.run(["rm", "-rf", root.folder], check=True)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:3]))
def test_commands_of_rpm_packages_run_for_an_ordinary_user(
    rpm_root: Root, command: tuple[str, ...]
) -> None:
    done = rpm_root.run(*command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_live_page_of_rpm_packages_opens(rpm_root: Root) -> None:
    done = rpm_root.run(
        *("allod", "run", "--live", "--", "python3", "-c", LOOKS),
        ALLOD_LIVE_LINK="/tmp/link",
    )
    assert done.stdout == "200 True\n", done.stderr


def test_the_archive_is_an_installation(tmp_path: Path) -> None:
    (archive,) = make_packages(HERE, "TGZ", tmp_path, EPOCH)
    assert archive.name == f"allod-{version()}-linux-x86_64.tar.gz"
    subprocess.run(["tar", "xf", archive], cwd=tmp_path, check=True)
    prefix = tmp_path / archive.name.removesuffix(".tar.gz")
    installation = install.Installation(prefix, tmp_path)
    install.check_layout(installation)
    assert (prefix / "bin" / "allod").exists()
    assert not (prefix / "lib" / "debug").exists()


def test_the_bill_names_each_file_and_what_is_in_it(debs: dict[str, Path]) -> None:
    bill = json.loads(bill_of(dict.fromkeys(debs.values(), HERE), EPOCH))
    packages = {package["name"]: package for package in bill["packages"]}
    for path in debs.values():
        (checksum,) = packages[path.name]["checksums"]
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert checksum["checksumValue"] == digest
    assert {"libevent", "zlib", "uPlot", "libbacktrace"} <= packages.keys()
    identifiers = {package["SPDXID"] for package in bill["packages"]}
    assert len(identifiers) == len(bill["packages"])
    named = {each["relatedSpdxElement"] for each in bill["relationships"]}
    assert identifiers == named


def test_checksums_are_checked_by_sha256sum(debs: dict[str, Path]) -> None:
    folder = debs["allod"].parent
    (folder / "SHA256SUMS").write_text(sums_of(debs.values()))
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
