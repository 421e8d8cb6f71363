"""Installs the release build into an empty folder, and checks that programs of users find there
what they need: with CMake, with pkg-config, and with allod.o alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
CONSUMER = Path(__file__).with_name("consumer")
EXAMPLES = ROOT / "examples"
LIVE = "lib/liballod-live.so"
LAYOUT = (
    "include/allod.h",
    "include/allod.hpp",
    "include/allod-live.h",
    "lib/liballod.so",
    "lib/liballod.a",
    "lib/allod.o",
    "lib/liballod-debug.so",
    "lib/liballod-hardened.so",
    "lib/liballod-copies.so",
    "lib/liballod-ends.so",
    "lib/liballod-prefixed.so",
    "lib/liballod-prefixed.a",
    "lib/liballod-record.so",
    "lib/cmake/allod/allodConfig.cmake",
    "lib/cmake/allod/allodConfigVersion.cmake",
    "lib/pkgconfig/allod.pc",
    "lib/pkgconfig/allod-static.pc",
    "lib/pkgconfig/allod-prefixed.pc",
    "share/allod/allod.hpp",
    "share/doc/allod/LICENSE",
    "share/doc/allod/examples/arena.cpp",
    "share/man/man1/allod.1",
    "share/man/man7/liballod.7",
    "share/bash-completion/completions/allod",
    "share/fish/vendor_completions.d/allod.fish",
    "share/zsh/site-functions/_allod",
    "bin/allod",
)
# The file that malloc, or operator new, comes from in each program of the consumer.
ORIGINS = {
    "c_shared": "liballod.so",
    "c_static": "c_static",
    "c_debug": "liballod-debug.so",
    "c_prefixed": "libc.so",
    "c_prefixed_static": "libc.so",
    "c_object": "c_object",
    "cpp_shared": "liballod.so",
    "cpp_static": "cpp_static",
    "cpp_object": "cpp_object",
}


class CheckError(Exception):
    """The installation is not as it should be; the text says how."""


@dataclass(frozen=True)
class Installation:
    """An installed tree, and a folder to try it out in."""

    prefix: Path
    scratch: Path
    libraries: Path = Path("lib")

    @property
    def environment(self) -> dict[str, str]:
        """Finds the tree, and nothing of the checkout."""
        return {
            **{k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
            "CMAKE_PREFIX_PATH": str(self.prefix),
            "PKG_CONFIG_PATH": str(self.prefix / self.libraries / "pkgconfig"),
            "LD_LIBRARY_PATH": str(self.prefix / self.libraries),
        }

    def run(self, *command: str | Path) -> str:
        """Runs a command in the scratch folder and returns what it prints."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            cwd=self.scratch,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CheckError(
                f"{' '.join(words)} ended with {done.returncode}\n"
                f"{done.stdout}{done.stderr}"
            )
        return done.stdout


def install(build: Path, scratch: Path) -> Installation:
    """Installs a build, and moves the tree, which must not matter."""
    first, prefix = scratch / "first", scratch / "prefix"
    installation = Installation(prefix, scratch)
    installation.run("cmake", "--install", build, "--prefix", first)
    first.rename(prefix)
    return installation


def check_layout(installation: Installation) -> None:
    """Every file is where packages and people expect it, and there are the C++ layers."""
    absent = [name for name in LAYOUT if not (installation.prefix / name).exists()]
    if absent:
        raise CheckError(f"not installed: {', '.join(absent)}")
    headers = {
        path.relative_to(ROOT / "include")
        for path in (ROOT / "include" / "allod").rglob("*.hpp")
    }
    installed = installation.prefix / "include"
    missing = [name for name in headers if not (installed / name).exists()]
    if missing:
        raise CheckError(f"headers not installed: {sorted(map(str, missing))}")


def check_cmake(installation: Installation) -> None:
    """Every target of the CMake package works in a user's project."""
    build = installation.scratch / "consumer"
    installation.run(
        "cmake", "-G", "Ninja", "-S", CONSUMER, "-B", build, "-DCMAKE_BUILD_TYPE=Debug"
    )
    installation.run("cmake", "--build", build)
    for program, origin in ORIGINS.items():
        _check_origin(installation, build / program, origin)
    for way in ("shared", "debug", "hardened"):
        installation.run(build / f"idle_{way}")
    if (installation.prefix / LIVE).exists():
        installation.run(build / "live_only")


def check_live_page(installation: Installation) -> None:
    """The examples are a project of their own, which finds the package. With the live server in it,
    there is one more, and it serves a page."""
    build = installation.scratch / "examples"
    installation.run("cmake", "-G", "Ninja", "-S", EXAMPLES, "-B", build)
    if not (installation.prefix / LIVE).exists():
        return
    installation.run("cmake", "--build", build, "--target", "example_pool")
    page = installation.run(build / "pool", "echo $PAGE")
    if not page.startswith("http://127.0.0.1:"):
        raise CheckError(f"a program with the live server serves its page at {page}")


def check_pkg_config(installation: Installation) -> None:
    """The pkg-config file gives the flags of a link with the shared library."""
    flags = installation.run("pkg-config", "--cflags", "--libs", "allod").split()
    program = installation.scratch / "by-pkg-config"
    source = CONSUMER / "consumer.c"
    installation.run("cc", source, "-Wl,--as-needed", *flags, "-o", program)
    _check_origin(installation, program, "liballod.so")
    idle = installation.scratch / "idle-by-pkg-config"
    source = CONSUMER / "idle.c"
    installation.run("cc", source, "-Wl,--as-needed", *flags, "-o", idle)
    installation.run(idle)


def check_static_program(installation: Installation) -> None:
    """A program without any shared library gets Allod's malloc, and libc's is not in it."""
    program = installation.scratch / "all-static"
    source = installation.scratch / "all-static.c"
    source.write_text(
        "#include <allod.h>\n#include <stdlib.h>\n"
        "int main(void) { char *p = malloc(10); p[0] = 1; free(p);"
        " return allod_version() == NULL; }\n"
    )
    allod = installation.prefix
    include, object_file = f"-I{allod}/include", allod / "lib" / "allod.o"
    installation.run("cc", "-static", include, object_file, source, "-o", program)
    installation.run(program)
    names = {line.split()[-1] for line in installation.run("nm", program).splitlines()}
    if "_int_malloc" in names:
        raise CheckError("a static program with allod.o contains libc's malloc as well")


def _check_origin(installation: Installation, program: Path, origin: str) -> None:
    found = Path(installation.run(program).strip()).name
    if not found.startswith(origin):
        raise CheckError(f"{program.name} gets its malloc from {found}, not {origin}")


CHECKS = (
    check_layout,
    check_cmake,
    check_live_page,
    check_pkg_config,
    check_static_program,
)


def complaints(build: Path) -> Iterator[str]:
    """Installs a build and yields what is wrong."""
    with tempfile.TemporaryDirectory(prefix="allod-install-") as scratch:
        installation = install(build, Path(scratch))
        for check in CHECKS:
            try:
                check(installation)
            except CheckError as error:
                yield f"{check.__name__}: {error}"


@click.command(help=__doc__)
@click.argument(
    "build",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    default=ROOT / "build" / "release",
)
def main(build: Path) -> None:
    """Prints what is wrong and fails if anything is."""
    found = list(complaints(build))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
