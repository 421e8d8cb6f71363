"""Builds presets with CMake, and does nothing quickly when nothing has changed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from allod.console import Failure, run_logged

from workshop.debian_files import ensure_musl_arm64
from workshop.environment import ensure_zig
from workshop.live_parts import ensure_live_parts
from workshop.locks import held
from workshop.packages import Requirement, ensure_requirements
from workshop.paths import BUILD, LOGS, ROOT, build_dir

PRODUCTS = (
    "liballod.so",
    "liballod.a",
    "allod.o",
    "liballod-debug.so",
    "liballod-hardened.so",
    "liballod-copies.so",
    "liballod-ends.so",
    "liballod-prefixed.so",
    "liballod-prefixed.a",
    "liballod-record.so",
    "include/allod.hpp",
)
WINDOWS_PRODUCTS = (
    "allod.dll",
    "liballod.dll.a",
    "liballod.a",
    "liballod-prefixed.a",
    "allod-replace.dll",
    "allod-run.exe",
)
# By zig, and the library that it makes.
ZIG_PRESETS = {
    "macos-x86-64": "liballod.dylib",
    "macos-arm64": "liballod.dylib",
    "freebsd-x86-64": "liballod.so",
    "freebsd-arm64": "liballod.so",
}
SOURCE_SUFFIXES = {
    ".c",
    ".cpp",
    ".h",
    ".hpp",
    ".S",
    ".cmake",
    ".in",
    ".txt",
    ".def",
} | {
    # The live page.
    ".ts",
    ".css",
    ".html",
    ".mjs",
    ".json",
}
BUILD_TOOLS = (Requirement("cmake", "cmake"), Requirement("ninja", "ninja-build"))
GCC = (Requirement("gcc", "gcc"), Requirement("g++", "g++"))
CLANG = (
    Requirement("clang++-19", "clang-19"),
    Requirement("/usr/lib/llvm-19/lib/clang/19/lib/linux", "libclang-rt-19-dev"),
    # Clang uses the C++ library that comes with gcc.
    Requirement("g++", "g++"),
)
# Compiler, libraries and GoogleTest's sources for arm64.
GCC_ARM64 = (
    Requirement("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu"),
    Requirement("/usr/src/googletest/CMakeLists.txt", "googletest"),
)
# Presets of the processors that came later, with Debian's cross compilers.
CROSS_COMPILERS = {
    "i386": Requirement("i686-linux-gnu-g++", "g++-i686-linux-gnu"),
    "armhf": Requirement("arm-linux-gnueabihf-g++", "g++-arm-linux-gnueabihf"),
    "s390x": Requirement("s390x-linux-gnu-g++", "g++-s390x-linux-gnu"),
    "riscv64": Requirement("riscv64-linux-gnu-g++", "g++-riscv64-linux-gnu"),
    "ppc64le": Requirement("powerpc64le-linux-gnu-g++", "g++-powerpc64le-linux-gnu"),
}
PORTS = tuple(CROSS_COMPILERS)
# Products that Allod does not have there.
ABSENT = {
    "i386": {"liballod-hardened.so"},
    "armhf": {"liballod-hardened.so"},
    "s390x": {"liballod-hardened.so", "liballod-record.so"},
}
CLANG_ARM64 = (*CLANG, *GCC_ARM64)
# musl, and what gcc has to be told to build for it.
GCC_MUSL = (*GCC, Requirement("musl-gcc", "musl-tools"))
# The compiler for Windows, by its kind that has threads of C++, and GoogleTest's sources.
MINGW = (
    Requirement("x86_64-w64-mingw32-g++-posix", "g++-mingw-w64-x86-64-posix"),
    Requirement("/usr/src/googletest/CMakeLists.txt", "googletest"),
)
# What the live page's server is made of, and what bundles the page.
LIVE_TOOLS = (
    Requirement("/usr/include/event2/http.h", "libevent-dev"),
    Requirement("/usr/include/zlib.h", "zlib1g-dev"),
    Requirement("node", "nodejs"),
    Requirement("npm", "npm"),
)
LIVE = "liballod-live.so"
TEST_LIBRARIES = (Requirement("/usr/include/gtest/gtest.h", "libgtest-dev"),)


@dataclass(frozen=True)
class Preset:
    """A configuration of CMakePresets.json."""

    name: str
    summary: str
    compilers: tuple[Requirement, ...]
    makes_products: bool
    test_target: str = "all"
    products: tuple[str, ...] = PRODUCTS


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("release", "the libraries, with gcc", GCC, makes_products=True),
        Preset("clang", "the libraries, with clang", CLANG, makes_products=True),
        Preset(
            "arm64",
            "the libraries for arm64, with gcc",
            GCC_ARM64,
            makes_products=True,
            test_target="arm64_tests",
        ),
        Preset(
            "arm64-clang",
            "the libraries for arm64, with clang",
            CLANG_ARM64,
            makes_products=True,
            test_target="arm64_tests",
        ),
        Preset(
            "musl",
            "the libraries for musl, with gcc",
            GCC_MUSL,
            makes_products=True,
            test_target="musl_tests",
        ),
        Preset(
            "arm64-musl",
            "the libraries for arm64 with musl, with gcc",
            GCC_ARM64,
            makes_products=True,
            test_target="musl_tests",
        ),
        Preset(
            "windows",
            "the libraries for Windows, with mingw-w64",
            MINGW,
            makes_products=True,
            test_target="windows_tests",
            products=WINDOWS_PRODUCTS,
        ),
        *(
            Preset(
                name,
                f"the library for {name}, with zig",
                (),
                makes_products=True,
                test_target="bsd_tests",
                products=(library,),
            )
            for name, library in ZIG_PRESETS.items()
        ),
        *(
            Preset(
                name,
                f"the libraries for {name}, with gcc",
                (compiler, *GCC_ARM64[1:]),
                makes_products=True,
                test_target="ports_tests",
                products=tuple(
                    library
                    for library in PRODUCTS
                    if library not in ABSENT.get(name, set())
                ),
            )
            for name, compiler in CROSS_COMPILERS.items()
        ),
        Preset("asan", "tests for address errors", CLANG, makes_products=False),
        Preset("tsan", "tests for data races", CLANG, makes_products=False),
        Preset("fuzz", "fuzzers", CLANG, makes_products=False),
    )
}


def ensure_built(
    preset: Preset, *, tests: bool = False, jobs: int | None = None, echo: bool = False
) -> bool:
    """Brings a preset up to date; returns whether there was anything to do."""
    if is_current(preset, tests=tests):
        return False
    ensure_requirements(
        (*BUILD_TOOLS, *preset.compilers, *(TEST_LIBRARIES if tests else ()))
    )
    with building(preset.name):
        if is_current(preset, tests=tests):
            return False
        # Taken before the build: what changes while it runs is built next time.
        digest = digest_of_inputs(tests=tests)
        _configure(preset, tests=tests, echo=echo)
        _compile(preset, tests=tests, jobs=jobs, echo=echo)
        _stamp(preset, tests=tests).write_text(digest)
    return True


def ensure_target_built(preset: Preset, target: str) -> None:
    """Brings a target of a preset up to date that is not its usual one."""
    ensure_requirements((*BUILD_TOOLS, *preset.compilers))
    with building(preset.name):
        _configure(preset, tests=True, echo=False)
        _compile_target(preset, target, jobs=None, echo=False)


def ensure_live_built(name: str = "release", *, echo: bool = False) -> Path:
    """Brings the library of a preset that serves the live page up to date, and returns it."""
    preset = PRESETS[name]
    stamp = build_dir(preset.name) / ".built-live"
    library = build_dir(preset.name) / LIVE
    digest = digest_of_inputs(tests=False, more=("live",))

    def is_there() -> bool:
        return library.exists() and stamp.exists() and stamp.read_text() == digest

    if is_there():
        return library
    with building(preset.name):
        if is_there():
            return library
        ensure_requirements((*BUILD_TOOLS, *preset.compilers, *LIVE_TOOLS))
        _configure(preset, tests=False, echo=echo, more=live_options(name))
        _compile_target(preset, "live", jobs=None, echo=echo)
        stamp.write_text(digest)
    return library


def ensure_toolchain(name: str) -> None:
    """What the toolchain file of a preset takes besides packages of this machine."""
    if name == "arm64-musl":
        ensure_musl_arm64()
    if name in ZIG_PRESETS:
        ensure_zig()


def live_options(name: str) -> list[str]:
    """What CMake has to be told to build the live server of a preset: nothing for this system. For
    others, the page is that of this system, and libevent and zlib are built from sources."""
    if name == "release":
        return []
    ensure_toolchain(name)
    page = ensure_live_built().parent / "live" / "page.html.gz"
    libraries = ensure_live_parts(name, ROOT / "cmake" / f"{name}.cmake")
    return [f"-DALLOD_LIVE_PAGE={page}", f"-DALLOD_LIVE_PARTS={libraries}"]


def ensure_live_configured(preset: Preset) -> None:
    """Makes the build of a preset, which has its tests, know the sources of the live page's server
    too: it does where it was configured with their libraries there."""
    ensure_requirements((*BUILD_TOOLS, *LIVE_TOOLS))
    with building(preset.name):
        _configure(preset, tests=True, echo=False)


def is_current(preset: Preset, *, tests: bool) -> bool:
    """Whether the last build saw the sources as they are now."""
    try:
        stamp = _stamp(preset, tests=tests).read_text()
    except FileNotFoundError:
        return False
    if preset.makes_products and not (tests and preset.name in PORTS):
        directory = build_dir(preset.name)
        if not all((directory / product).exists() for product in preset.products):
            return False
    return stamp == digest_of_inputs(tests=tests)


def digest_of_inputs(*, tests: bool, more: Sequence[str] = ()) -> str:
    """A digest of names, sizes and times of all files that a build reads."""
    digest = hashlib.sha256(str(ROOT).encode())
    folders = ["include", "src", "cmake", *(["tests"] if tests else []), *more]
    for name in ("CMakeLists.txt", "CMakePresets.json"):
        status = (ROOT / name).stat()
        digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    for folder in folders:
        for line in sorted(_described(str(ROOT / folder))):
            digest.update(line.encode())
    return digest.hexdigest()


def _described(folder: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _described(entry.path)
        elif os.path.splitext(entry.name)[1] in SOURCE_SUFFIXES:
            status = entry.stat()
            yield f"{entry.path} {status.st_size} {status.st_mtime_ns}\n"


def _stamp(preset: Preset, *, tests: bool) -> Path:
    return build_dir(preset.name) / f".built-{'tests' if tests else 'products'}"


def building(name: str) -> AbstractContextManager[None]:
    """One build of a preset, or of something else with a name, at a time; a second one waits."""
    return held(BUILD / f".{name}.lock", f"a build of {name}")


def _configure(
    preset: Preset, *, tests: bool, echo: bool, more: Sequence[str] = ()
) -> None:
    ensure_toolchain(preset.name)
    command = ["cmake", "--preset", preset.name, *more]
    if tests:
        command.append("-DALLOD_BUILD_TESTS=ON")
    if _made_elsewhere(preset):
        command.append("--fresh")
    run_logged(
        f"configuring {preset.name}",
        command,
        LOGS / f"{preset.name}-configure.log",
        directory=ROOT,
        echo=echo,
    )


def _made_elsewhere(preset: Preset) -> bool:
    """Whether the checkout was moved or copied with its build folder."""
    cache = build_dir(preset.name) / "CMakeCache.txt"
    if not cache.exists():
        return False
    home = re.search(
        r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(), re.MULTILINE
    )
    return home is None or Path(home[1]).resolve() != ROOT


def _compile(preset: Preset, *, tests: bool, jobs: int | None, echo: bool) -> None:
    target = preset.test_target if tests else "products"
    _compile_target(preset, target, jobs=jobs, echo=echo)


def _compile_target(
    preset: Preset, target: str, *, jobs: int | None, echo: bool
) -> None:
    what = {preset.test_target: " and its tests", "live": ": live page"}.get(target, "")
    command = ["cmake", "--build", str(build_dir(preset.name)), "--target", target]
    if jobs is not None:
        command += ["--parallel", str(jobs)]
    run_logged(
        f"building {preset.name}{what}",
        command,
        LOGS / f"{preset.name}-build.log",
        directory=ROOT,
        echo=echo,
    )


def product(name: str, preset: str = "release") -> Path:
    """The path of a product, which must have been built."""
    path = build_dir(preset) / name
    if not path.exists():
        raise Failure(f"{path} does not exist: run ./allod build")
    return path
