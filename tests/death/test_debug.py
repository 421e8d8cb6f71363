"""The debug library sees every misuse at once and says what, where and who."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from surface.black_box import Runner

from death.reports import (
    ALIGNED_ALLOC,
    FOREIGN_ADDRESSES,
    FREE,
    GONE,
    HEX,
    LARGEST_CLASS,
    MALLOC,
    NOT_OURS,
    REALLOC,
    Misuse,
    Scene,
    run,
)

KIB, MIB = 1 << 10, 1 << 20


SIZES = {
    100: 176,
    1000: 1152,
    40_000: 40_960,
    600_000: 655_360,
    10 * MIB: 10 * MIB + 64 * KIB,
}
"""From what is asked for to what the block has, with 64 bytes that nobody may touch: from each
kind of block one."""


WAITING = (100, 1000, 40_000)
"""Blocks that wait after their free, so that a write to them is seen."""


# The compiler makes one function of the plain and the array form.
ARRAY_NEW = "(?:_Znam|_Znwm)"


SIZED_ARRAY_DELETE = "(?:_ZdaPvm|_ZdlPvm)"


ALLOCATED = (MALLOC, "allocating_function")


FREED = (FREE, "freeing_function")


def double_free(
    size: int,
    *,
    allocated: tuple[str, str] = ALLOCATED,
    freed: tuple[str, str] = FREED,
    misused: tuple[str, str] = (FREE, "misusing_function"),
    thread: str = "",
    may_be_gone: bool = False,
) -> Callable[[Scene], str]:
    """A second free; whether a block of a class is still in its slab is not always certain."""

    def text(scene: Scene) -> str:
        place = scene.place(SIZES[size])
        if size > LARGEST_CLASS:
            place = GONE
        elif may_be_gone:
            place = f"(?:{place}|{GONE})"
        return (
            scene.headline("double free of", scene.facts["block"])
            + place
            + scene.requested("free", size)
            + scene.event("allocated", *allocated)
            + scene.event("freed", *freed)
            + scene.event("this call", *misused, thread=thread)
        )

    return text


def interior_free(
    size: int,
    offset: int,
    misused: tuple[str, str] = (FREE, "misusing_function"),
) -> Callable[[Scene], str]:
    """A free of an address inside of a block that is in use."""

    def text(scene: Scene) -> str:
        return (
            scene.headline("invalid free of", scene.facts["block"] + offset)
            + scene.place(SIZES[size], offset=offset)
            + scene.requested("in use", size)
            + scene.event("allocated", *ALLOCATED)
            + scene.event("this call", *misused)
        )

    return text


def end_of_slab(scene: Scene) -> str:
    """A free of an address behind the last block of a slab."""
    return (
        scene.headline("invalid free of", scene.facts["address"])
        + GONE
        + scene.event("this call", FREE, "misusing_function")
    )


def foreign_free(entry: str, function: str) -> Callable[[Scene], str]:
    """A free of memory that is not Allod's."""

    def text(scene: Scene) -> str:
        return (
            scene.headline("free of foreign address", scene.facts["address"])
            + NOT_OURS
            + scene.event("this call", entry, function)
        )

    return text


def wrong_size(
    size_class: int,
    claimed: int,
    allocated: tuple[str, ...],
    misused: tuple[str, str],
) -> Callable[[Scene], str]:
    """A sized free of a block of 100 bytes, with a size that was not asked for."""

    def text(scene: Scene) -> str:
        return (
            scene.headline("free with the wrong size of", scene.facts["block"])
            + scene.place(size_class)
            + f"allod:   the caller says {claimed} bytes\n"
            + scene.requested("in use", 100)
            + scene.event("allocated", *allocated)
            + scene.event("this call", *misused)
        )

    return text


def double_frees() -> Iterator[Misuse]:
    """Each size, at each moment."""
    for size in SIZES:
        given = {"SIZE": size}
        # A large block that is free may be kept as it is, or not be a block any more.
        large = size > 32 * KIB
        second = double_free(size, may_be_gone=large)
        yield Misuse("misuse", "double_free_at_once", second, given)
        yield Misuse("misuse", "double_free_after_other_frees", second, given)
        elsewhere = double_free(size, thread="thread", may_be_gone=large)
        yield Misuse("misuse", "double_free_by_another_thread", elsewhere, given)
        by_a_child = double_free(size, may_be_gone=large)
        yield Misuse("misuse", "double_free_in_a_child", by_a_child, given)
        freed = (REALLOC, "reallocating_function")
        moved = double_free(size, freed=freed, may_be_gone=large)
        yield Misuse("misuse", "double_free_after_realloc", moved, given)
        misused = (REALLOC, "misusing_realloc")
        resized = double_free(size, misused=misused, may_be_gone=large)
        for new_size in (size, 3 * size):
            new = {"NEW_SIZE": new_size}
            yield Misuse("misuse", "realloc_of_a_freed_block", resized, given | new)


def interior_frees() -> Iterator[Misuse]:
    """The next byte, the middle, and, where there are any, the later slices of a block."""
    for size in SIZES:
        given = {"SIZE": size}
        for offset in (1, 16, size // 2, size - 1):
            text = interior_free(size, offset)
            at = {"OFFSET": offset}
            yield Misuse("misuse", "free_of_an_address_in_a_block", text, given | at)
        text = interior_free(size, 16, (REALLOC, "misusing_realloc"))
        at = {"OFFSET": 16}
        yield Misuse("misuse", "realloc_of_an_address_in_a_block", text, given | at)
    # 372 blocks of 176 bytes leave 64 bytes at the end of a slice.
    end = {"SIZE": 100, "OFFSET": 372 * 176}
    yield Misuse("misuse", "free_of_the_end_of_a_slab", end_of_slab, end)


FOREIGN_FREES = [
    Misuse(
        "misuse",
        case,
        foreign_free(FREE, "misusing_function"),
        parameters,
        deadly=False,
    )
    for case, parameters in FOREIGN_ADDRESSES
]


FOREIGN_REALLOC = Misuse(
    "misuse",
    "realloc_of_a_foreign_address",
    foreign_free(REALLOC, "misusing_realloc"),
    deadly=False,
)


def wrong_sizes() -> Iterator[Misuse]:
    """Less and more than was asked for, within the block's class too."""
    by_array_new = (ARRAY_NEW, "function_with_array_new")
    by_aligned_new = ("_ZnwmSt11align_val_t", "function_with_aligned_new")
    for case, program, size_class, allocated, entry, function in (
        (
            *("free_sized_with_the_wrong_size", "misuse", 176, ALLOCATED),
            *("free_sized", "misusing_free_sized"),
        ),
        (
            *(
                "free_aligned_sized_with_the_wrong_size",
                "misuse",
                192,
                (ALIGNED_ALLOC,),
            ),
            *("free_aligned_sized", "misusing_free_aligned_sized"),
        ),
        (
            *("sized_delete_with_the_wrong_size", "deletes", 176),
            *(("_Znwm", "function_with_new"), "_ZdlPvm", "function_with_sized_delete"),
        ),
        (
            *("sized_array_delete_with_the_wrong_size", "deletes", 176, by_array_new),
            *(SIZED_ARRAY_DELETE, "function_with_sized_array_delete"),
        ),
        (
            *(
                "sized_aligned_delete_with_the_wrong_size",
                "deletes",
                256,
                by_aligned_new,
            ),
            *("_ZdlPvmSt11align_val_t", "function_with_sized_aligned_delete"),
        ),
    ):
        for claimed in (0, 99, 101, 112, 5000):
            text = wrong_size(size_class, claimed, allocated, (entry, function))
            given = {"SIZE": 100, "CLAIMED": claimed}
            yield Misuse(program, case, text, given)


def changed_behind(
    size: int, offset: int, misused: tuple[str, str]
) -> Callable[[Scene], str]:
    """A write past the end of a block, seen when the program gives the block back."""

    def text(scene: Scene) -> str:
        return report_of_overflow(scene, size, offset) + scene.event(
            "this call", *misused
        )

    return text


def report_of_overflow(scene: Scene, size: int, offset: int) -> str:
    """All but who has found it."""
    return (
        scene.headline("write past the end of", scene.facts["block"])
        + scene.place(SIZES[size])
        + scene.requested("in use", size)
        + f"allod:   the first changed byte is byte {size + offset}\n"
        + scene.event("allocated", *ALLOCATED)
    )


def report_of_late_write(scene: Scene, size: int, offset: int) -> str:
    """A write to a block that was freed: all but who has found it."""
    return (
        scene.headline("write after free to", scene.facts["block"] + offset)
        + scene.place(SIZES[size], offset=offset)
        + scene.requested("free", size)
        + scene.event("allocated", *ALLOCATED)
        + scene.event("freed", *FREED)
    )


def changed_after_free(size: int, offset: int) -> Callable[[Scene], str]:
    """A write to a block that was freed, seen when the heap is checked."""

    def text(scene: Scene) -> str:
        return report_of_late_write(scene, size, offset) + scene.event(
            "this call", "allod_check", "survive"
        )

    return text


def wrong_writes() -> Iterator[Misuse]:
    """Behind blocks, from the first byte to the last that is seen, and into free ones."""
    freeing = (FREE, "misusing_function")
    resizing = (REALLOC, "misusing_realloc")
    for size in SIZES:
        for offset in (0, 1, 40, 63):
            given = {"SIZE": size, "OFFSET": offset}
            text = changed_behind(size, offset, freeing)
            yield Misuse("overruns", "write_behind_a_block", text, given)
        text = changed_behind(size, 0, resizing)
        case = "write_behind_a_block_that_is_resized"
        yield Misuse("overruns", case, text, {"SIZE": size})
    for size in WAITING:
        for offset in (0, size // 2, size - 1, size + 40):
            given = {"SIZE": size, "OFFSET": offset}
            late = changed_after_free(size, offset)
            yield Misuse("overruns", "write_after_free", late, given)


def deep_stack(scene: Scene) -> str:
    """Frames of a recursion, as many as a report shows: main is too far away."""
    some = ["recursing_function"] * 15

    def event(what: str, entry: str, function: str) -> str:
        return scene.event(what, entry, function, *some, thread="main_thread")

    return (
        scene.headline("double free of", scene.facts["block"])
        + scene.place(176)
        + scene.requested("free", 100)
        + event("allocated", MALLOC, "allocating_function")
        + event("freed", FREE, "misusing_function")
        + event("this call", FREE, "misusing_function")
    )


MISUSES = [
    *double_frees(),
    *interior_frees(),
    *FOREIGN_FREES,
    FOREIGN_REALLOC,
    *wrong_sizes(),
    *wrong_writes(),
    Misuse("misuse", "double_free_deep_in_the_stack", deep_stack),
    Misuse(
        "deletes",
        "double_delete",
        double_free(
            100,
            allocated=("_Znwm", "function_with_new"),
            freed=("_ZdlPv", "function_with_delete"),
            misused=("_ZdlPv", "function_with_delete"),
        ),
        {"SIZE": 100},
    ),
]


@pytest.mark.parametrize("misuse", MISUSES, ids=str)
def test_report(misuse: Misuse, debug: Runner) -> None:
    """The report, and nothing else, is on standard error, and the process is aborted."""
    misuse.check(debug, death=misuse.deadly)


@pytest.mark.parametrize("misuse", MISUSES, ids=str)
def test_program_goes_on(misuse: Misuse, debug: Runner) -> None:
    """With ALLOD_ABORT_ON_ERROR=0 there is one report, and the call had no effect."""
    misuse.check(debug, {"ABORT_ON_ERROR": "0"}, death=False)


@pytest.mark.parametrize("misuse", MISUSES[::7], ids=str)
def test_silent_death(misuse: Misuse, debug: Runner) -> None:
    """With ALLOD_SHOW_ERRORS=0 the process is aborted without a word."""
    outcome = misuse.run(debug, {"SHOW_ERRORS": "0"})
    outcome.expect("", death=misuse.deadly)


@pytest.mark.parametrize("misuse", FOREIGN_FREES, ids=str)
def test_foreign_address_is_ignored_when_told(misuse: Misuse, debug: Runner) -> None:
    """With ALLOD_FOREIGN_FREE=ignore the debug library leaves foreign memory alone."""
    outcome = misuse.run(debug, {"FOREIGN_FREE": "ignore"})
    outcome.expect("", death=False)


@pytest.mark.parametrize(
    ("case", "report"),
    [
        ("write_behind_a_block_until_the_end", report_of_overflow),
        ("write_after_free_until_the_end", report_of_late_write),
    ],
)
@pytest.mark.parametrize("size", WAITING)
def test_the_last_look_is_at_the_end(
    case: str, report: Callable[[Scene, int, int], str], size: int, debug: Runner
) -> None:
    """What nobody has given back, and what nobody has had again, is seen when the process ends."""
    given = {"SIZE": size, "OFFSET": 40}
    outcome = run(debug, "overruns", case, given)
    end = rf"allod:   this call by thread {outcome.scene.facts['main_thread']}:\n"
    frames = rf"(?:allod:     #\d+ {HEX}[^\n]*\n)+"
    text = report(outcome.scene, size, 40) + end + frames
    outcome.expect(text, death=True)


def test_all_of_the_usable_size_may_be_written(debug: Runner) -> None:
    """By malloc_usable_size, whichever function has given the block."""
    case = "writes_up_to_the_usable_size"
    run(debug, "overruns", case).expect("", death=False)


def test_samples_are_as_large_as_asked_for(debug: Runner) -> None:
    """With a profile, only what rounding leaves is watched."""
    options = {"PROFILE": "1"}
    given = {"SIZE": 100, "OFFSET": 11}
    case = "write_behind_a_block"
    outcome = run(debug, "overruns", case, given, options)
    assert outcome.errors.splitlines()[1].endswith(
        "of size class 112, owned by domain 1"
    )
    assert "the first changed byte is byte 111\n" in outcome.errors


@pytest.mark.parametrize(
    ("program", "case"),
    [
        ("misuse", "free_sized_with_the_right_size"),
        ("deletes", "sized_deletes_with_the_right_size"),
    ],
)
def test_right_sizes_are_no_misuse(program: str, case: str, debug: Runner) -> None:
    """Sized frees with the size of the allocation pass without a word."""
    run(debug, program, case).expect("", death=False)
