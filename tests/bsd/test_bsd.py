"""The library for macOS and FreeBSD, built by zig: what its files say, and how it runs on Linux,
where functions of ours stand in for those systems' C libraries.

Neither system is here. The libraries are the files that one would run there; an emulator runs those
for arm64. What they ask of the system is what tests/bsd/darwin/libsystem.cpp and
tests/bsd/freebsd/libc.c answer, after the systems' headers and sources: whether the systems do so,
only they can tell.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from allod.console import Failure
from long_runs import shortly
from options.table import OPTIONS
from workshop.build import PRESETS, ZIG_PRESETS, ensure_built
from workshop.paths import ROOT, build_dir

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PORTABLE = HERE / "portable"
DebianPackages = Callable[..., None]
MACOS = [name for name in ZIG_PRESETS if name.startswith("macos")]
FREEBSD = ["freebsd-x86-64", "freebsd-arm64"]


def runs_natively(preset: str) -> bool:
    """Others need an emulator."""
    return "arm64" not in preset


each_build = pytest.mark.parametrize(
    "preset", shortly([*MACOS, *FREEBSD], runs_natively)
)
each_macos = pytest.mark.parametrize("preset", shortly(MACOS, runs_natively))
each_freebsd = pytest.mark.parametrize("preset", shortly(FREEBSD, runs_natively))

# What the library takes the place of.
INTERPOSED = {
    *("malloc", "free", "calloc", "realloc", "reallocf", "valloc", "aligned_alloc"),
    *("posix_memalign", "malloc_size", "malloc_good_size"),
}
REPLACED_IN_LIBC = {
    *("malloc", "free", "calloc", "realloc", "reallocf", "reallocarray", "valloc"),
    *("aligned_alloc", "posix_memalign", "memalign", "malloc_usable_size"),
}
NEW = {
    f"_Zn{array}m{alignment}{nothrow}"
    for array in "wa"
    for alignment in ("", "St11align_val_t")
    for nothrow in ("", "RKSt9nothrow_t")
}
DELETE = {
    f"_Zd{array}Pv{rest}"
    for array in "la"
    for rest in (
        *("", "m", "RKSt9nothrow_t", "St11align_val_t", "mSt11align_val_t"),
        "St11align_val_tRKSt9nothrow_t",
    )
}
# Names that zig's linker exports from each library of macOS.
LINKERS = {"__dso_handle", "_mh_dylib_header"}
# Instructions up to the return, on Linux: tools/checks/budgets.toml and budgets-arm64.toml.
ON_LINUX = {"x86-64": {"malloc": 13, "free": 19}, "arm64": {"malloc": 17, "free": 26}}
MORE = 4


def library_of(preset: str) -> Path:
    """The built library; skips where it cannot be built."""
    try:
        ensure_built(PRESETS[preset], tests=True)
    except Failure as reason:
        if "failed" in str(reason) and "install" not in str(reason):
            raise
        pytest.skip(str(reason))
    return build_dir(preset) / ZIG_PRESETS[preset]


@pytest.fixture(scope="module", autouse=True)
def _tools(debian_packages: DebianPackages) -> None:
    if platform.system() != "Linux":
        pytest.skip("checks what Linux builds")
    debian_packages("llvm-19", "binutils")


@cache
def told(command: str, *arguments: str | Path) -> str:
    """What a tool for files says."""
    done = subprocess.run(
        [command, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def objdump(library: Path, *arguments: str) -> str:
    return told("llvm-objdump-19", "--macho", *arguments, library)


def functions_of_the_api() -> set[str]:
    listed = (ROOT / "cmake" / "allod.def").read_text().split("EXPORTS", 1)[1]
    return set(listed.split())


# What is in the files


@each_macos
def test_a_library_for_macos_needs_its_system_library_alone(preset: str) -> None:
    library = library_of(preset)
    used = re.findall(r"^\t(\S+) \(", objdump(library, "--dylibs-used"), re.M)
    assert set(used) - {"@rpath/liballod.dylib"} == {"/usr/lib/libSystem.B.dylib"}
    bound = objdump(library, "--bind", "--lazy-bind")
    sources = re.findall(
        r"^__\w+ +__\w+ +0x\w+ (?:pointer +\d+ )?(\S+) +\S+$", bound, re.M
    )
    assert sources and set(sources) == {"libSystem"}


@each_macos
def test_a_library_for_macos_says_what_it_is_for(preset: str) -> None:
    library = library_of(preset)
    header = objdump(library, "--private-headers")
    processor = {"macos-x86-64": "X86_64", "macos-arm64": "ARM64"}[preset]
    assert re.search(rf"MH_MAGIC_64 +{processor} .* DYLIB ", header)
    # Without this, its operator new would not take the place of others.
    assert "WEAK_DEFINES" in header
    assert re.search(r"cmd LC_ID_DYLIB\n.*\n +name @rpath/liballod\.dylib ", header)
    assert re.search(r"cmd LC_BUILD_VERSION\n.*\n +platform macos\n", header)
    assert re.search(r"minos 11\.0$", header, re.M)
    # macOS on arm64 loads nothing without a signature.
    assert ("LC_CODE_SIGNATURE" in header) == (preset == "macos-arm64")


@each_macos
def test_a_library_for_macos_exports_the_api_and_operators(preset: str) -> None:
    trie = objdump(library_of(preset), "--exports-trie")
    found = dict(re.findall(r"^0x\w+ +_(\w+)(.*)$", trie, re.M))
    assert set(found) - LINKERS == functions_of_the_api() | NEW | DELETE
    weak = {name for name, how in found.items() if "weak_def" in how}
    assert weak == NEW | DELETE


@each_macos
def test_dyld_is_told_of_a_pair_for_each_function(preset: str) -> None:
    bound = objdump(library_of(preset), "--bind")
    pairs = re.findall(
        r"^__DATA +__interpose +0x(\w+) +pointer +0 libSystem +_(\w+)$", bound, re.M
    )
    assert {name for _, name in pairs} == INTERPOSED
    # Each is the second of two pointers; the first is one into the library.
    places = sorted(int(place, 16) for place, _ in pairs)
    rebased = objdump(library_of(preset), "--rebase")
    ours = re.findall(r"^__DATA +__interpose +0x(\w+) +pointer$", rebased, re.M)
    assert sorted(int(place, 16) + 8 for place in ours) == places


@each_macos
def test_no_variable_of_a_thread_is_dylds(preset: str) -> None:
    """Those would call malloc at a thread's first access."""
    sections = objdump(library_of(preset), "--section-headers")
    assert "__allod_cells" in sections and "__thread" not in sections


@each_freebsd
def test_a_library_for_freebsd_replaces_malloc(preset: str) -> None:
    library = library_of(preset)
    dynamic = told("readelf", "--dynamic", "--wide", library)
    needed = set(re.findall(r"NEEDED\).*\[(.*)\]", dynamic))
    assert needed == {"libc.so.7", "libthr.so.3"}
    assert "NODELETE" in dynamic
    symbols = told("readelf", "--dyn-syms", "--wide", library)
    defined = re.findall(r" (?:GLOBAL|WEAK) +DEFAULT +\d+ (\S+)$", symbols, re.M)
    assert set(defined) == functions_of_the_api() | REPLACED_IN_LIBC | NEW | DELETE
    foreign = re.findall(r" UND (\S+)", symbols)
    assert {name for name in foreign if "@FBSD_" not in name} == {"environ"}


@each_build
@pytest.mark.parametrize("function", ["malloc", "free"])
def test_a_fast_path_has_four_instructions_more_at_most(
    preset: str, function: str
) -> None:
    library = library_of(preset)
    name = f"_allod_{function}" if preset in MACOS else f"allod_{function}"
    text = told(
        "llvm-objdump-19",
        *("-d", "--no-show-raw-insn", f"--disassemble-symbols={name}"),
        library,
    )
    common = re.findall(r"^ +[0-9a-f]+: +\t?(\w[\w.]*)", text, re.M)
    ends = [i for i, one in enumerate(common) if one in ("ret", "retq")]
    processor = preset.split("-", 1)[1]
    assert ends, text
    # The compiler puts the common path first.
    assert ends[0] + 1 <= ON_LINUX[processor][function] + MORE, text


# How they run


@dataclass(frozen=True)
class Host:
    """What runs a program of Linux on a library of another system."""

    preset: str
    folder: Path
    emulator: tuple[str, ...] = ()

    def run(
        self, program: str, *arguments: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ALLOD_")}
        library = build_dir(self.preset)
        if self.preset in MACOS:
            kept |= {"TEST_LIBRARY": str(library / "liballod.dylib")}
        else:
            kept |= {"LD_LIBRARY_PATH": f"{self.folder}:{library}"}
        return subprocess.run(
            [*self.emulator, self.folder / program, *arguments],
            env=kept | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


COMMON = (
    *("-O1", "-g1", "-fno-builtin", "-Wall", "-Wextra", "-Werror"),
    *(f"-I{folder}" for folder in (ROOT / "include", PORTABLE, HERE / "darwin")),
)
C = ("gcc", "-std=gnu17", *COMMON)
CXX = ("g++", "-std=c++20", *COMMON)
# The systems' error numbers, where they differ.
ERRORS = ("-include", str(HERE / "darwin" / "errors.h"))


def compiled(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def host_for_macos(folder: Path, tools: str = "") -> None:
    """The library is loaded by ours: each program is linked with a loader and what stands in for
    libSystem. `tools`: what the names of the compilers begin with."""
    c = (f"{tools}{C[0]}", *C[1:])
    cxx = (f"{tools}{CXX[0]}", *CXX[1:])
    for part in ("host", "libsystem"):
        source = HERE / "darwin" / f"{part}.cpp"
        compiled(*cxx, "-c", source, "-o", folder / f"{part}.o")
    renamed = ("-Dmain=program_main", *ERRORS)
    interposed = [f"-D{name}=interposed_{name}" for name in sorted(INTERPOSED)]
    programs: dict[str, tuple[str | Path, ...]] = {
        "api": (*c, *renamed, PORTABLE / "api.c"),
        "unaware": (*c, *renamed, *interposed, HERE / "unaware.c"),
        "zone": (*cxx, HERE / "darwin" / "zone.cpp"),
    }
    for name, command in programs.items():
        compiled(*command, "-c", "-o", folder / f"{name}.o")
        parts = [folder / f"{part}.o" for part in (name, "host", "libsystem")]
        wrap = "-Wl,--wrap=pthread_create"
        compiled(cxx[0], *parts, wrap, "-o", folder / name)


def host_for_freebsd(folder: Path, library: Path, tools: str = "") -> None:
    """The library is loaded by Linux, which finds libraries of ours by the names of FreeBSD's."""
    c = (f"{tools}{C[0]}", *C[1:])
    cxx = (f"{tools}{CXX[0]}", *CXX[1:])
    here = HERE / "freebsd"
    for name, source in (("libc.so.7", "libc"), ("libthr.so.3", "thr")):
        compiled(
            *(*c, "-fPIC", "-shared"),
            *(here / f"{source}.c", "-o", folder / name),
            *(f"-Wl,-soname,{name}", f"-Wl,--version-script={here / source}.map"),
        )
    link = (library, "-Wl,--no-as-needed,--allow-shlib-undefined")
    compiled(*c, *ERRORS, PORTABLE / "api.c", *link, "-o", folder / "api")
    compiled(*c, HERE / "unaware.c", *link, "-o", folder / "unaware")
    operators = PORTABLE / "operators.cpp"
    compiled(*cxx, operators, *link, "-o", folder / "operators")


ON_X86 = ("macos-x86-64", "freebsd-x86-64")
TRIPLE = "aarch64-linux-gnu"
EMULATOR = ("qemu-aarch64-static", "-L", f"/usr/{TRIPLE}")


@pytest.fixture(scope="module", params=shortly([*MACOS, *FREEBSD], runs_natively))
def host(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    debian_packages: DebianPackages,
) -> Host:
    """A stand-in for each system."""
    preset: str = request.param
    if platform.machine() != "x86_64" or shutil.which("g++") is None:
        pytest.skip("the libraries run on x86-64, by gcc")
    library = library_of(preset)
    folder = tmp_path_factory.mktemp(preset)
    is_native = preset in ON_X86
    if not is_native:
        debian_packages(f"g++-{TRIPLE}", "qemu-user-static")
    tools = "" if is_native else f"{TRIPLE}-"
    if preset in MACOS:
        host_for_macos(folder, tools)
    else:
        host_for_freebsd(folder, library, tools)
    return Host(preset, folder, () if is_native else EMULATOR)


# What is the same for every processor.
on_x86 = pytest.mark.parametrize("host", ON_X86, indirect=True)


def cases_of(source: Path) -> list[str]:
    """The names of the cases in a source."""
    return re.findall(r'^ +\{"(\w+)", \w+\},$', source.read_text(), re.M)


REPORTS = {
    "double_free": r"allod: error: double free of 0x[0-9a-f]+",
    "invalid_free": (
        r"allod: error: invalid free of 0x[0-9a-f]+, 1048576 bytes into a block of \d+ bytes"
    ),
}


# Under the emulator, a process whose threads run at its end sometimes faults after its last line.
# Without it, that did not happen in eighty runs.
ENDING = {"the_process_ends_while_threads_allocate"}


def all_hold(host: Host, program: str, source: Path) -> None:
    """All cases of the program, one after the other in one process."""
    left_out = {*REPORTS, *(ENDING if host.emulator else ())}
    cases = [case for case in cases_of(source) if case not in left_out]
    assert cases
    done = host.run(program, *cases)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.split() if line in cases] == cases
    assert "allod:" not in done.stderr


def test_the_functions_of_the_header(host: Host) -> None:
    all_hold(host, "api", PORTABLE / "api.c")


def test_a_program_that_was_not_built_with_it(host: Host) -> None:
    all_hold(host, "unaware", HERE / "unaware.c")


@pytest.mark.parametrize("host", FREEBSD, indirect=True)
def test_operators_on_freebsd(host: Host) -> None:
    """With the C++ library of Linux, which throws where memory is exhausted."""
    all_hold(host, "operators", PORTABLE / "operators.cpp")


@pytest.mark.parametrize("host", shortly(MACOS, runs_natively), indirect=True)
def test_the_zone_of_macos(host: Host) -> None:
    all_hold(host, "zone", HERE / "darwin" / "zone.cpp")


@on_x86
@pytest.mark.parametrize("case", REPORTS)
def test_a_mistake_is_reported_and_ends_the_process(host: Host, case: str) -> None:
    done = host.run("api", case, TEST_ALONE="1")
    assert done.returncode == -signal.SIGABRT
    assert re.search(REPORTS[case], done.stderr), done.stderr
    calm = host.run("api", case, TEST_ALONE="1", ALLOD_ABORT_ON_ERROR="0")
    assert calm.returncode == 0, calm.stderr
    assert re.search(REPORTS[case], calm.stderr), calm.stderr


@on_x86
def test_statistics_are_printed_at_the_end(host: Host) -> None:
    done = host.run("api", "nothing", ALLOD_SHOW_STATS="1")
    assert done.returncode == 0
    assert re.search(r"^live +\d", done.stderr, re.M), done.stderr


@on_x86
def test_an_option_says_what_it_is_or_that_it_is_absent(host: Host) -> None:
    system = "macOS" if host.preset in MACOS else "FreeBSD"
    help_text = host.run("api", "nothing", ALLOD_HELP="1").stderr
    assert f"reads these environment variables on {system}:" in help_text
    present = set(re.findall(r"^ +ALLOD_(\w+)=", help_text, re.M))
    known = {name.removeprefix("ALLOD_") for name in OPTIONS}
    absent = known - present
    assert absent and present <= known
    variables = {f"ALLOD_{name}": "1" for name in absent}
    done = host.run("api", "nothing", **variables)
    message = rf"ALLOD_(\w+) is ignored; {system} does not have this option"
    assert set(re.findall(message, done.stderr)) == absent, done.stderr
    done = host.run("api", "nothing", ALLOD_PURGE_DALEY="1", ALLOD_REGION_SIZE="7")
    assert "unknown option ALLOD_PURGE_DALEY is ignored" in done.stderr
    assert "ALLOD_REGION_SIZE=7 is ignored; expected bytes, 1M to 64G" in done.stderr


@on_x86
def test_a_program_with_elevated_rights_ignores_all_options(host: Host) -> None:
    done = host.run("api", "nothing", ALLOD_HELP="1", ALLOD_NONE="1", TEST_ELEVATED="1")
    assert done.returncode == 0
    assert done.stderr == ""
