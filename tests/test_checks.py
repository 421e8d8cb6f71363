"""The checks of tools/checks pass, and each of them can fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checks import abi, budgets, install, style, symbols, versions, words
from workshop.build import ensure_live_built
from workshop.environment import ensure_bench, ensure_collector
from workshop.paths import ROOT

SCRIPTS = (
    *("abi", "budgets", "imports_order", "install", "layers"),
    "processors",
    *("style", "symbols", "tidy", "versions", "words"),
)
DebianPackages = Callable[..., None]
# Stands in for malloc. Its fast path has 5 instructions; the one of 3 moves no block.
FAST = """
    endbr64
    test %rdi, %rdi
    je 1f
    mov (%rdi), %rax
    mov %rax, 8(%rdi)
    ret
1:  ret
"""


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_check_runs_alone_and_explains_itself(name: str) -> None:
    script = ROOT / "tools" / "checks" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, check=True
    )
    assert "--help" in done.stdout


@pytest.mark.parametrize("check", style.CHECKS, ids=lambda check: check.name)
def test_sources_are_formatted_and_free_of_lint(
    check: style.Check, debian_packages: DebianPackages
) -> None:
    debian_packages(*check.packages)
    if check.name == "mypy":
        ensure_bench()
        ensure_collector()
    complaint = check.complaint()
    if complaint is not None:
        pytest.fail(complaint, pytrace=False)


# Budgets


def test_fast_paths_keep_their_budgets(liballod: Path) -> None:
    rules = budgets.read_budgets(budgets.BUDGETS)
    assert {"malloc", "free", "_ZdlPvm", "malloc_usable_size"} <= rules.keys()
    found = budgets.measure(liballod, rules)
    assert [complaint for one in found for complaint in one.complaints] == []


def assembled(folder: Path, body: str, name: str = "malloc") -> Path:
    """A shared library with one function."""
    source = folder / "function.s"
    source.write_text(
        f".text\n.globl {name}\n.type {name}, @function\n{name}:\n{body}\n"
        f".size {name}, .-{name}\n.section .note.GNU-stack\n"
    )
    library = folder / "function.so"
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", library, source], check=True)
    return library


def complaints_on(
    library: Path, at_most: int, path: str = "shortest", *, stores: bool = True
) -> list[str]:
    rules: budgets.Rules = {
        "malloc": {"at_most": at_most, "path": path, "stores": stores}
    }
    return [
        complaint
        for finding in budgets.measure(library, rules)
        for complaint in finding.complaints
    ]


@pytest.mark.parametrize("symbol", ["malloc", "_Znwm"])
def test_hardened_functions_fetch_both_ends_of_the_next_block(
    build_dir: Path, symbol: str
) -> None:
    paths = budgets.fast_paths(build_dir / "liballod-hardened.so", symbol)
    fetched = {
        tuple(
            step.operands for step in path.instructions if "prefetch" in step.mnemonic
        )
        for path in paths
        if path.stores
    }
    # Nothing where the magazine has become empty.
    assert {len(set(ends)) for ends in fetched} == {0, 2}


def test_a_fast_path_costs_what_it_executes_up_to_its_return(tmp_path: Path) -> None:
    library = assembled(tmp_path, FAST)
    assert complaints_on(library, at_most=5) == []
    assert complaints_on(library, at_most=4) == ["malloc: 5 instructions, budget 4"]


def test_the_longest_path_can_be_held_to_the_budget(tmp_path: Path) -> None:
    library = assembled(
        tmp_path,
        """
        mov %rsi, 8(%rdi)
        test %rsi, %rsi
        je 1f
        ret
        1: mov %rsi, 16(%rdi)
        nop
        ret
        """,
    )
    assert complaints_on(library, at_most=4) == []
    assert complaints_on(library, at_most=5, path="longest") == []
    assert complaints_on(library, at_most=4, path="longest") == [
        "malloc: 5 instructions, budget 4"
    ]


@pytest.mark.parametrize(
    ("before", "after", "culprit"),
    [
        ("push %rbx", "pop %rbx", "push %rbx"),
        ("mov %rdi, -8(%rsp)", "", "mov %rdi,-0x8(%rsp)"),
        ("sub $8, %rsp", "add $8, %rsp", "sub $0x8,%rsp"),
        ("movl $1, -4(%rbp)", "", "movl $0x1,-0x4(%rbp)"),
    ],
)
def test_use_of_the_stack_on_the_fast_path_is_found(
    tmp_path: Path, before: str, after: str, culprit: str
) -> None:
    library = assembled(
        tmp_path, f"{before}\nmov (%rdi), %rax\nmov %rax, 8(%rdi)\n{after}\nret\n"
    )
    assert f"malloc: uses the stack: {culprit}" in complaints_on(library, at_most=9)


def test_slow_paths_cost_nothing(tmp_path: Path) -> None:
    library = assembled(
        tmp_path,
        """
        test %rdi, %rdi
        je elsewhere@PLT
        cmp $1, %rdi
        je 1f
        lock cmpxchg %rax, (%rdi)
        ret
        1: push %rbx
        call elsewhere@PLT
        pop %rbx
        ret
        """,
    )
    assert complaints_on(library, at_most=6, path="longest") == []
    assert complaints_on(library, at_most=5) == ["malloc: 6 instructions, budget 5"]


def test_a_function_that_only_answers_is_held_to_what_stores_nothing(
    tmp_path: Path,
) -> None:
    library = assembled(
        tmp_path,
        """
        test %rdi, %rdi
        je 1f
        mov (%rdi), %rax
        ret
        1: mov %rsi, 8(%rdi)
        mov %rsi, %rax
        nop
        ret
        """,
    )
    assert complaints_on(library, at_most=4, stores=False) == []
    assert complaints_on(library, at_most=4) == ["malloc: 5 instructions, budget 4"]
    only_answers = assembled(tmp_path, "mov (%rdi), %rax\nret")
    with pytest.raises(budgets.CheckError, match="stores something"):
        complaints_on(only_answers, at_most=9)
    with pytest.raises(budgets.CheckError, match="stores nothing"):
        complaints_on(
            assembled(tmp_path, "mov %rax, (%rdi)\nret"), at_most=9, stores=False
        )


def test_a_function_without_a_fast_path_is_an_error(tmp_path: Path) -> None:
    library = assembled(tmp_path, "mov %rax, (%rdi)\njmp elsewhere@PLT")
    with pytest.raises(budgets.CheckError, match="no path to a return"):
        complaints_on(library, at_most=9)


def test_a_missing_function_is_an_error(tmp_path: Path) -> None:
    library = assembled(tmp_path, FAST, name="other")
    with pytest.raises(budgets.CheckError, match="has no function malloc"):
        complaints_on(library, at_most=9)


def test_one_function_can_be_held_to_what_another_costs(tmp_path: Path) -> None:
    library = assembled(tmp_path, FAST)
    rules: budgets.Rules = {
        "malloc": {"at_most": 9, "path": "shortest"},
        "other": {"as": "malloc", "path": "shortest"},
    }
    with pytest.raises(budgets.CheckError, match="has no function other"):
        budgets.measure(library, rules)

    dearer = FAST.replace("mov (%rdi), %rax", "mov (%rdi), %rax\nadd %rax, %rax")
    body = f"{FAST}.globl other\n.type other, @function\nother:{dearer}"
    library = assembled(tmp_path, f"{body}.size other, .-other")
    findings = budgets.measure(library, rules)
    assert [finding.at_most for finding in findings] == [9, 5]
    assert findings[1].complaints == ["other: 6 instructions, budget 5"]


# Sizes


def test_libraries_keep_their_sizes(build_dir: Path) -> None:
    rules = budgets.read_budgets(budgets.SIZES)
    libraries = {path.stem for path in build_dir.glob("lib*.so")}
    # That of the live page is built where its page can be.
    assert rules.keys() - libraries <= {"liballod-live"}
    there = {name: rules[name] for name in libraries}
    assert budgets.size_complaints(build_dir, there) == []


def test_a_large_array_that_is_not_zero_is_found(tmp_path: Path) -> None:
    for name, first in (("zeros", 0), ("others", 1)):
        source = f"char array[1 << 20] = {{{first}}};"
        command = ["cc", "-shared", "-xc", "-", "-o", str(tmp_path / f"{name}.so")]
        subprocess.run(command, input=source, text=True, check=True)
    rules: budgets.Rules = {
        name: {"data": 16, "stripped": 64} for name in ("zeros", "others")
    }
    found = budgets.size_complaints(tmp_path, rules)
    assert [one.split(" has ")[0] for one in found] == [
        "others: data",
        "others: stripped",
    ]
    with pytest.raises(budgets.CheckError, match="missing.so is not there"):
        budgets.size_complaints(tmp_path, {"missing": rules["zeros"]})


# Symbols


@pytest.mark.parametrize(
    "name", ["liballod.so", "liballod-debug.so", "liballod-hardened.so"]
)
def test_the_replacing_libraries_export_the_whole_surface_and_need_libc(
    build_dir: Path, name: str
) -> None:
    expected = symbols.expected_symbols(
        header=ROOT / "include" / "allod.h",
        names=ROOT / "tools" / "checks" / "symbols.txt",
    )
    assert {"malloc", "free", "_Znwm", "allod_malloc"} <= expected
    assert list(symbols.complaints(build_dir / name, expected)) == []


def test_the_prefixed_library_exports_the_prefixed_surface_only(
    build_dir: Path,
) -> None:
    expected = symbols.expected_symbols(header=ROOT / "include" / "allod.h", names=None)
    assert all(name.startswith("allod_") for name in expected)
    library = build_dir / "liballod-prefixed.so"
    assert list(symbols.complaints(library, expected)) == []


@pytest.mark.parametrize(
    "name",
    [
        *("liballod.so", "liballod-debug.so", "liballod-hardened.so"),
        *("liballod-prefixed.so", "liballod-copies.so", "liballod-ends.so"),
    ],
)
def test_what_is_allod_s_own_has_a_version_and_nothing_else_has(
    build_dir: Path, name: str
) -> None:
    own = symbols.own_versions()
    header = ROOT / "include" / "allod.h"
    assert own.keys() == symbols.expected_symbols(header=header, names=None)
    assert list(symbols.version_complaints(build_dir / name, own)) == []


def test_a_wrong_version_is_found(liballod: Path) -> None:
    own = {**symbols.own_versions(), "malloc": "ALLOD_0.1"}
    del own["allod_malloc"]
    assert list(symbols.version_complaints(liballod, own)) == [
        "liballod.so exports allod_malloc in version ALLOD_0.1, not none",
        "liballod.so exports malloc in version none, not ALLOD_0.1",
    ]


def test_the_interface_of_c_is_as_it_is_written_down(
    build_dir: Path, debian_packages: DebianPackages
) -> None:
    debian_packages(abi.PACKAGE)
    assert list(abi.complaints(build_dir / "liballod-prefixed.so")) == []


def test_a_function_that_went_is_found(
    tmp_path: Path, debian_packages: DebianPackages
) -> None:
    debian_packages(abi.PACKAGE)
    library = tmp_path / "library.so"
    command = ["cc", "-shared", "-g", "-xc", "-", "-o", str(library)]
    written = tmp_path / "written.abi"
    for text in ("int one(int x) {return x;} int two(int x) {return x;}", ""):
        source = text or "int one(int x) {return x;}"
        subprocess.run(command, input=source, text=True, check=True)
        if text:
            written.write_text(abi.interface(library))
    (found,) = abi.complaints(library, written)
    assert found.startswith("programs that were built before do not run any more")


def test_the_library_of_copies_exports_these_alone(build_dir: Path) -> None:
    functions = ("memcpy", "memmove", "mempcpy", "memset")
    texts = ("strcpy", "stpcpy", "strncpy", "strcat", "strncat")
    expected = {*functions, *texts, *(f"__{name}_chk" for name in (*functions, *texts))}
    library = build_dir / "liballod-copies.so"
    assert list(symbols.complaints(library, expected)) == []


@pytest.mark.parametrize(
    "name",
    [
        "liballod.so",
        "liballod-debug.so",
        "liballod-hardened.so",
        "liballod-prefixed.so",
    ],
)
def test_what_the_libraries_use_of_libc_is_explained(
    build_dir: Path, name: str
) -> None:
    explained = set().union(*symbols.explained_imports().values())
    assert list(symbols.unexplained_imports(build_dir / name, explained)) == []


def test_what_is_explained_is_used(build_dir: Path) -> None:
    names = ("allod", "allod-debug", "allod-hardened", "allod-prefixed")
    used = set().union(
        *(symbols.imported_symbols(build_dir / f"lib{name}.so") for name in names)
    )
    assert set().union(*symbols.explained_imports().values()) - used == set()


def test_an_import_without_explanation_is_found(tmp_path: Path) -> None:
    source = tmp_path / "library.c"
    source.write_text("#include <time.h>\nlong now(void) { return time(NULL); }\n")
    library = tmp_path / "library.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True
    )
    explained = set().union(*symbols.explained_imports().values())
    assert list(symbols.unexplained_imports(library, explained)) == [
        "library.so uses time, of which imports.toml says nothing",
    ]


@pytest.mark.parametrize("name", versions.LIBRARIES)
def test_the_libraries_load_with_glibc_2_17(build_dir: Path, name: str) -> None:
    assert "GLIBC_2.2.5" in versions.needed_versions(build_dir / name)
    assert list(versions.complaints(build_dir / name)) == []


def test_the_live_server_loads_with_glibc_2_17() -> None:
    assert list(versions.complaints(ensure_live_built())) == []


def test_a_version_that_is_too_new_is_found(tmp_path: Path) -> None:
    source = tmp_path / "library.c"
    source.write_text(
        "extern long getrandom(void *, unsigned long, unsigned);\n"
        "long take(void *to) { return getrandom(to, 8, 0); }\n"
    )
    library = tmp_path / "library.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True
    )
    assert list(versions.complaints(library)) == [
        "library.so needs GLIBC_2.25, which glibc 2.17 has not",
    ]


def test_wrong_symbols_and_libraries_are_found(tmp_path: Path) -> None:
    source = tmp_path / "library.c"
    source.write_text("#include <math.h>\ndouble extra(double x) { return cos(x); }\n")
    library = tmp_path / "library.so"
    flags = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-o", str(library)]
    subprocess.run(["cc", *flags, str(source), "-lm"], check=True)
    assert list(symbols.complaints(library, {"malloc"})) == [
        "library.so exports extra, which is not expected",
        "library.so does not export malloc",
        "library.so needs libm.so.6",
    ]


def test_declarations_are_told_from_comments_and_macros() -> None:
    header = """
    /* allod_commented() is not there. */  // nor allod_this()
    #define ALLOD_API \\
      allod_macro()
    ALLOD_API void* allod_malloc(size_t size);
    typedef struct allod_thing allod_thing;
    void allod_walk(void (*visit)(void*), allod_thing* thing);
    """
    assert symbols.declared_functions(header) == {"allod_malloc", "allod_walk"}


# Installation


@pytest.fixture(scope="module")
def installation(
    build_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> install.Installation:
    return install.install(build_dir, tmp_path_factory.mktemp("install"))


@pytest.mark.parametrize("check", install.CHECKS, ids=lambda check: check.__name__)
def test_an_installation_serves_its_users(
    check: Callable[[install.Installation], None],
    installation: install.Installation,
    debian_packages: DebianPackages,
) -> None:
    debian_packages("pkg-config")
    try:
        check(installation)
    except install.CheckError as error:
        pytest.fail(str(error), pytrace=False)


# Five lines of a project, besides its own.
FETCH = """
include(FetchContent)
FetchContent_Declare(allod SOURCE_DIR {root})
FetchContent_MakeAvailable(allod)
add_executable(c_shared {source})
target_link_libraries(c_shared PRIVATE allod::shared ${{CMAKE_DL_LIBS}})
"""


def test_a_project_can_have_allod_among_its_sources(tmp_path: Path) -> None:
    """Without optimisation, where whatever the compiler does not drop has to be there. What the
    project did not ask for is not built, installed or named."""
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(parent LANGUAGES C CXX)\n"
        + FETCH.format(root=ROOT, source=install.CONSUMER / "consumer.c")
        + "get_property(names DIRECTORY ${allod_SOURCE_DIR} PROPERTY BUILDSYSTEM_TARGETS)\n"
        + 'file(WRITE ${CMAKE_BINARY_DIR}/names "${names}")\n'
    )
    build = tmp_path / "build"
    options = ["-G", "Ninja", "-B", str(build), "-DCMAKE_BUILD_TYPE=Debug"]
    subprocess.run(["cmake", "-S", str(tmp_path), *options], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    built = {path.name for path in build.rglob("*") if path.suffix in (".so", ".a")}
    assert built == {"liballod.so", "liballod_older.a"}
    names = (build / "names").read_text().split(";")
    assert "allod_static" in names
    assert [name for name in names if not name.startswith("allod_")] == []
    prefix = tmp_path / "prefix"
    subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True)
    assert not prefix.exists()
    done = subprocess.run(
        [build / "c_shared"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert Path(done.stdout.strip()).name.startswith("liballod.so")


# What a build without a preset runs, sh for the rules of make.
BUILD_COMMANDS = (
    *("cmake", "make", "sh", "cc", "c++", "gcc", "as", "ld"),
    *("ar", "ranlib", "nm", "objcopy", "objdump", "readelf", "strip"),
)


def test_make_builds_in_a_fresh_folder_without_python(
    debian_packages: DebianPackages, tmp_path: Path
) -> None:
    """Without a preset, as the README shows; make sees fewer dependencies than Ninja. No part of
    the build runs anything but these commands, and what it makes of sources alone is the same."""
    debian_packages("make")
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in BUILD_COMMANDS:
        found = shutil.which(name)
        assert found is not None
        (commands / name).symlink_to(found)
    environment = {"PATH": str(commands), "HOME": str(tmp_path)}
    build = tmp_path / "build"

    def run(*words: str | Path) -> str:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("cmake", "-G", "Unix Makefiles", "-S", ROOT, "-B", build)
    targets = ("allod_static", "allod_single_header")
    run("cmake", "--build", build, "--target", *targets)
    assert (build / "liballod.a").exists()
    assert "allod.h" in (build / "include" / "allod.hpp").read_text()
    # What is left to do takes longer, and runs no other commands. The page is built when asked for.
    rules = {path.parent.name: path for path in build.rglob("build.make")}
    rules.pop("allod_live.dir", None)
    assert "allod_hardened_shared.dir" in rules
    text = "".join(path.read_text() for path in rules.values())
    assert re.findall(r"\b(?:python\d?|npm|node|pip|git|curl)\b", text) == []


def test_the_package_is_found_without_the_live_server(
    build_dir: Path, tmp_path: Path
) -> None:
    installation = install.install(build_dir, tmp_path)
    for path in (installation.prefix / "lib").glob("liballod-live.so*"):
        path.unlink()
    install.check_live_page(installation)


def test_a_hole_in_the_installation_is_found(build_dir: Path, tmp_path: Path) -> None:
    installation = install.install(build_dir, tmp_path)
    os.remove(installation.prefix / "lib" / "allod.o")
    with pytest.raises(install.CheckError, match="not installed: lib/allod.o"):
        install.check_layout(installation)
    with pytest.raises(install.CheckError):
        install.check_cmake(installation)


# Words


def test_the_user_s_pages_read_at_once() -> None:
    assert list(words.complaints(ROOT)) == []


LONG = " ".join(["word"] * (words.MOST_WORDS + 1))


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (f"Short.\n\n{LONG}.\n", f"3: {words.MOST_WORDS + 1} words"),
        (f"* Short\n* {LONG}\n", f"2: {words.MOST_WORDS + 1} words"),
        (LONG.replace(" ", "\n"), f"1: {words.MOST_WORDS + 1} words"),
        (f"[{LONG}](page.md)", f"1: {words.MOST_WORDS + 1} words"),
        ("Use the\nfront door.\n", "1: 'front door'"),
        ("```\ncode\n```\nThat what\nis so.\n", "4: 'that what'"),
        ("| Windows | not yet |\n", "1: 'not yet' as the value of a table"),
    ],
)
def test_a_page_that_reads_badly_is_found(
    tmp_path: Path, page: str, fault: str
) -> None:
    (tmp_path / "README.md").write_text(page)
    (found,) = words.complaints(tmp_path)
    assert found.startswith(f"README.md:{fault}")


def test_code_tables_headings_and_links_are_not_prose(tmp_path: Path) -> None:
    short = " ".join(["word"] * (words.MOST_WORDS - 1))
    (tmp_path / "README.md").write_text(
        f"# {LONG}\n\n```\n{LONG}\n```\n\n    {LONG}\n\n| {LONG} |\n\n"
        f"![{LONG}](picture.svg)\n\n<!-- {LONG} -->\n\n{short} `{LONG}`.\n\n"
        f"{short}. {short}!\n{short} ({LONG.replace(' ', '-')}).\n"
    )
    assert list(words.complaints(tmp_path)) == []
