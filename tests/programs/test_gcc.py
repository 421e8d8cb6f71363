"""The GNU compiler, assembler and linker under make."""

from __future__ import annotations

import shutil

from bench.programs import gcc

from .launcher import WORKLOADS, DebianPackages, Launcher, Sides, digests

PARTS = 2
UNITS = 2
"""Of a part: each makes the compiler instantiate many templates."""


def main_file() -> str:
    """The source that calls every part."""
    declarations = "".join(f"long part{number}(int);\n" for number in range(PARTS))
    total = " + ".join(f"part{number}({number + 9})" for number in range(PARTS))
    return (
        "#include <cstdio>\n"
        f'{declarations}int main() {{ std::printf("%ld\\n", {total}); }}\n'
    )


def test_gcc_compiles_and_links_the_same_objects_in_parallel(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("g++", "make")

    def work(launcher: Launcher) -> tuple[str, dict[str, str]]:
        for number in range(PARTS):
            source = launcher.directory / f"part{number}.cpp"
            units = range(number * UNITS, (number + 1) * UNITS)
            source.write_text(gcc.source(units, f"part{number}"))
        (launcher.directory / "main.cpp").write_text(main_file())
        shutil.copy(WORKLOADS / "gcc" / "Makefile", launcher.directory)
        launcher.run("make", "-j2")
        printed = launcher.run(launcher.directory / "program").text
        launcher.check_allocator_of("make", "g++", "cc1plus", "as", "ld", "program")
        return printed, digests(launcher.directory, "*.o") | digests(
            launcher.directory, "program"
        )

    printed, built = sides.agree_on(work)
    assert int(printed) != 0
    assert len(built) == PARTS + 2
