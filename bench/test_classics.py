"""What single classic workloads do, and which defects of an allocator they see."""

from pathlib import Path

import pytest

from bench.tiny import Params, compile_library, run, start


def test_a_delete_with_a_size_changes_nothing_else(programs: Path) -> None:
    plain = run(programs, "larson", {"sized": 0})
    assert run(programs, "larson", {"sized": 1})["checksum"] == plain["checksum"]


def test_the_simple_workload_tells_its_batches_apart(programs: Path) -> None:
    points = run(programs, "simple", {})["points"]
    assert [point["name"] for point in points] == ["25", "100", "400", "1600"]
    assert all(point["nanoseconds"] > 0 for point in points)
    assert "points" not in run(programs, "simple", {"size": 0})


# What goes wrong is seen.


def test_the_sized_server_calls_the_allocators_sized_delete(
    programs: Path, tmp_path: Path
) -> None:
    library = compile_library(
        tmp_path,
        "void *_Znwm(size_t n) { return malloc(n); }\n"
        "void _ZdlPv(void *p) { free(p); }\n"
        "void _ZdlPvm(void *p, size_t n) { (void)p; (void)n; _Exit(7); }",
    )
    assert start(programs, "larson", {"sized": 0}, library).returncode == 0
    assert start(programs, "larson", {"sized": 1}, library).returncode == 7


@pytest.mark.parametrize(
    ("program", "params"),
    [
        ("larson", {"max": 60}),
        ("mixed_order", {"max": 60}),
        ("simple", {"size": 0}),
        ("ttest", {"max": 60}),
        ("xmalloc", {}),
    ],
)
def test_an_allocator_that_hands_out_live_memory_is_caught(
    programs: Path, tmp_path: Path, program: str, params: Params
) -> None:
    library = compile_library(
        tmp_path,
        "static char pool[1 << 16];\n"
        "void *__libc_malloc(size_t n);\n"
        "void __libc_free(void *p);\n"
        "void *malloc(size_t n) { return n < 64 ? pool : __libc_malloc(n); }\n"
        "void free(void *p) { if (p != pool) __libc_free(p); }",
    )
    done = start(programs, program, params, library)
    assert done.returncode == 1
    assert "was overwritten" in done.stderr


def test_a_realloc_that_forgets_is_caught(programs: Path, tmp_path: Path) -> None:
    library = compile_library(
        tmp_path,
        "void *realloc(void *p, size_t n) { free(p); return calloc(1, n); }",
    )
    done = start(programs, "ttest", {}, library)
    assert done.returncode == 1
    assert "a block was overwritten" in done.stderr
