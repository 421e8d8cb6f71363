"""Rows are named by what the user wrote: by the server, and by the tools, in the same way."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from allod.profile import names
from workshop.paths import ROOT

from .conftest import Serve, sample_all

# The whole name, the short one, and whether it only passes allocations on.
NAMES = {
    "main": ("main", False),
    "zmalloc": ("zmalloc", True),
    "hashTypeSet": ("hashTypeSet", False),
    "mallocator": ("mallocator", False),
    "libstdc++.so.6+0xa57b9": ("libstdc++.so.6+0xa57b9", True),
    "operator new(unsigned long)": ("operator new", True),
    "operator new[](unsigned long)": ("operator new[]", True),
    "(anonymous namespace)::Cache::make(unsigned long)": ("Cache::make", False),
    "void std::vector<A<B>, C>::insert(D const&)": ("std::vector::insert", True),
    "std::unique_ptr<A> make<A>(int) [clone .cold]": ("make", False),
    "A::B<C>::operator()(int) const": ("A::B::operator()", False),
    "std::ostream& operator<< <char>(std::ostream&, char)": ("operator<<", False),
    "bool operator==<A>(A const&, A const&)": ("operator==", False),
    "A::operator bool() const": ("A::operator bool", False),
    "f(int)::{lambda(int)#1}::operator()(int) const": (
        "f::{lambda#1}::operator()",
        False,
    ),
    "<module>": ("<module>", False),
    "Store.fill.<locals>.<lambda>": ("Store.fill.<locals>.<lambda>", False),
    "outer.<locals>.inner": ("outer.<locals>.inner", False),
    "cooperators::run()": ("cooperators::run", False),
    "alloc::raw_vec::RawVec<T,A>::grow_one::h0123456789abcdef": (
        "alloc::raw_vec::RawVec::grow_one",
        True,
    ),
    "<app::Cache<T> as core::clone::Clone>::clone::h0123456789abcdef": (
        "app::Cache::clone",
        False,
    ),
}


def test_tools_shorten_names() -> None:
    for whole, told in NAMES.items():
        name = names.short(whole)
        assert (name, names.is_wrapper(name)) == told


def test_the_server_shortens_names(tmp_path: Path) -> None:
    program = tmp_path / "names"
    source = Path(__file__).with_name("names.cpp")
    words = ["c++", "-std=c++20", f"-I{ROOT}/live", str(source)]
    subprocess.run([*words, ROOT / "live" / "names.cpp", "-o", program], check=True)
    done = subprocess.run(
        [program, names.LIST.read_text()],
        input="\n".join(NAMES),
        capture_output=True,
        text=True,
        check=True,
    )
    told = [tuple(line.split("\t")) for line in done.stdout.splitlines()]
    assert told == [(name, str(int(listed))) for name, listed in NAMES.values()]


# As in a file, and as people read them. Those of Rust are of its own tests and of its book.
MANGLED = {
    "_RNvCskwGfYPst2Cb_3foo16example_function": "foo::example_function",
    "_RINvNtC3std3mem8align_ofdE": "std::mem::align_of::<f64>",
    "_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_": "cc::spawn::{closure#0}::{closure#0}",
    "_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator"
    "9rpositionNCNgNpB9_6memchr7memrchrs_0E0Bb_": (
        "<core::slice::Iter<u8> as core::iter::iterator::Iterator>::rposition"
        "::<core::slice::memchr::memrchr::{closure#1}>::{closure#0}"
    ),
    "_RMC0INtC8arrayvec8ArrayVechKj7b_E": "<arrayvec::ArrayVec<u8, 123>>",
    "_RNvNvNtC3app5cache4fillRAhj4_": "_RNvNvNtC3app5cache4fillRAhj4_",
    "_RNvB_": "_RNvB_",
    "_ZN49_$LT$app..Cache$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE": (
        "<app::Cache as core::clone::Clone>::clone::h0123456789abcdef"
    ),
    "_ZN3app5Cache4fillEi": "app::Cache::fill(int)",
    "_D3app5Cache4fillMFiZv": "app.Cache.fill",
    "_Dmain": "_Dmain",
    "main.(*Cache).Fill": "main.(*Cache).Fill",
}


def test_names_of_rust_and_d_are_demangled(tmp_path: Path) -> None:
    program = tmp_path / "demangle"
    sources = [Path(__file__).with_name("demangle.cpp"), ROOT / "src/text/demangle.cpp"]
    words = ["c++", "-std=c++20", "-Wall", f"-I{ROOT}/src", *map(str, sources)]
    subprocess.run([*words, "-o", program], check=True)
    done = subprocess.run(
        [program],
        input="\n".join(MANGLED),
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(zip(MANGLED, done.stdout.splitlines(), strict=True)) == MANGLED


SEVEN = ["alpha", "beta", "theta", "delta", "epsilon", "zeta", "eta"]


@pytest.fixture
def wrapped(tmp_path: Path) -> Path:
    """Seven functions that allocate through one wrapper of the program's own."""
    source = tmp_path / "wrapped.c"
    callers = "\n".join(
        f"__attribute__((noinline)) void {name}(void) {{ my_alloc({i + 1}000); }}"
        for i, name in enumerate(SEVEN)
    )
    calls = "".join(f"{name}(); " for name in SEVEN)
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        "void* volatile kept[1000]; int n;\n"
        "__attribute__((noinline)) void* my_alloc(size_t s)\n"
        "{ void* p = malloc(s); kept[n++] = p; return p; }\n"
        f"{callers}\n"
        "int main(void) { char line[99]; fgets(line, 99, stdin); for (int i = 0; i < 20; ++i) {"
        f" {calls} }}\n"
        'puts("done"); fflush(stdout); fgets(line, 99, stdin); return 0; }\n'
    )
    program = tmp_path / "wrapped"
    subprocess.run(["cc", "-g", "-O0", "-o", program, source], check=True)
    return program


def test_a_list_that_users_extend_names_rows(serve: Serve, wrapped: Path) -> None:
    with serve(wrapped, profile="0", live_wrappers="other,my_al*") as program:
        sample_all(program)
        program.do("go")
        flame = program.ask("/api/flame?of=live").json()["root"]
    marked, by_caller = set(), {}
    waiting = [flame]
    while waiting:
        node = waiting.pop()
        waiting += node.get("c", [])
        if node.get("w"):
            marked.add(node["n"])
        if node["n"] in SEVEN:
            by_caller[node["n"]] = node["b"]
    assert "my_alloc" in marked
    assert not marked & {"main", *SEVEN}
    assert set(by_caller) == set(SEVEN)
