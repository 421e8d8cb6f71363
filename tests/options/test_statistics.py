"""Statistics: their forms agree with each other and with what the program has done.

Those of the default library: the others make blocks larger, and keep freed ones and some of their
own.
"""

from __future__ import annotations

import os
import re
from xml.etree import ElementTree

import pytest
from surface.black_box import Runner, describe

from options.statistics import (
    BLOCKS,
    HUNDRED,
    KIB,
    MIB,
    SLICE,
    Json,
    objects,
    of_class,
    verify,
)


def without_the_system(stats: Json) -> Json:
    """What Allod counts itself. What the system counts changes with each look."""
    of_system = {"faults", "resident", "resident_peak"}
    return {name: value for name, value in stats.items() if name not in of_system}


def looks(release: Runner, case: str) -> list[Json]:
    """What the program saw of itself, look for look."""
    result = release.run_well("statistics", case)
    assert result.stderr == "", describe(result)
    seen = objects(result.stdout)
    for stats in seen:
        verify(stats)
    return seen


def seven_threads(
    release: Runner, case: str, caches: str, **variables: str
) -> tuple[list[Json], list[int]]:
    """Looks while six threads run beside the first and when they have ended; all their ids."""
    result = release.run_well("statistics", case, ALLOD_CACHES=caches, **variables)
    seen = objects(result.stdout)
    assert len(seen) == 2
    for stats in seen:
        verify(stats)
    threads = [int(line) for line in result.stdout.splitlines() if line.isdecimal()]
    assert len(threads) == 7
    return seen, threads


def test_looking_changes_nothing(release: Runner) -> None:
    """Asking for numbers is neither an allocation nor anything else that is counted."""
    first, second = looks(release, "looks_only")
    assert without_the_system(first) == without_the_system(second)


def test_blocks_of_a_class(release: Runner) -> None:
    """1000 blocks of 100 bytes are 1000 live blocks of their class, until they are freed."""
    case = "holds_1000_blocks_of_100"
    before, held, after = looks(release, case)
    assert of_class(before, HUNDRED)["live"] == of_class(after, HUNDRED)["live"]
    gained = of_class(held, HUNDRED)["live"] - of_class(before, HUNDRED)["live"]
    assert gained == BLOCKS
    assert held["live_blocks"] - before["live_blocks"] == BLOCKS
    assert held["live"] - before["live"] == BLOCKS * HUNDRED
    assert after["live"] == before["live"]
    assert held["slow_paths"]["refills"] > before["slow_paths"]["refills"]
    assert held["slow_paths"]["slabs_created"] > before["slow_paths"]["slabs_created"]
    gained = of_class(after, HUNDRED)["cached"] - of_class(held, HUNDRED)["cached"]
    assert gained > BLOCKS / 2


def test_blocks_of_many_sizes(release: Runner) -> None:
    """Live bytes are those of the requests, and at most an eighth more above small sizes."""
    case = "holds_blocks_of_many_sizes"
    before, held, half = looks(release, case)
    sizes = [i**3 % (300 * KIB) for i in range(300)]
    for stats, wanted in ((held, sizes), (half, sizes[1::2])):
        assert stats["live_blocks"] - before["live_blocks"] == len(wanted)
        gained = stats["live"] - before["live"]
        assert sum(wanted) <= gained <= sum(wanted) * 1.125 + 16 * len(wanted)
    assert half["spans"]["peak_used"] == held["spans"]["peak_used"]


def test_huge_blocks(release: Runner) -> None:
    """Blocks above all classes are counted in whole slices, and are dirty when freed."""
    before, held, after = looks(release, "holds_3_huge_blocks")
    slices = 3 * (5 * MIB + SLICE)
    assert held["huge_blocks"] - before["huge_blocks"] == 3
    assert held["huge"] - before["huge"] == slices
    assert held["live"] - before["live"] == slices
    assert after["huge_blocks"] == before["huge_blocks"]
    assert after["huge"] == before["huge"]
    assert after["dirty"] - held["dirty"] == slices


def test_huge_blocks_that_are_used_again(release: Runner) -> None:
    """One that a thread keeps counts like any other that is free."""
    case = "uses_a_huge_block_6_times"
    before, after = looks(release, case)
    assert after["spans"]["taken"] - before["spans"]["taken"] == 4
    assert after["spans"]["freed"] - before["spans"]["freed"] == 4
    assert before["dirty"] == after["dirty"] >= 5 * MIB
    assert before["huge_blocks"] == after["huge_blocks"] == 0


def test_remote_frees(release: Runner) -> None:
    """Blocks that another thread frees are counted there, and again when they are home."""
    case = "another_thread_frees_1000_blocks"
    before, freed, collected = looks(release, case)
    assert freed["remote"]["frees"] - before["remote"]["frees"] == BLOCKS
    batches = freed["remote"]["batches"] - before["remote"]["batches"]
    assert 1 <= batches <= BLOCKS
    assert freed["remote"]["collected"] <= BLOCKS
    assert collected["remote"]["collected"] - before["remote"]["collected"] == BLOCKS
    assert collected["remote"]["frees"] == freed["remote"]["frees"]
    lost = of_class(before, HUNDRED)["live"] - of_class(freed, HUNDRED)["live"]
    assert lost == BLOCKS


def test_orphans(release: Runner) -> None:
    """What a thread leaves behind has no domain, and goes when its blocks are freed."""
    case = "a_thread_leaves_1000_blocks"
    before, left, freed = looks(release, case)
    assert before["orphan_slabs"] == 0
    assert left["orphan_slabs"] >= BLOCKS * HUNDRED // SLICE
    gained = of_class(left, HUNDRED)["live"] - of_class(before, HUNDRED)["live"]
    assert gained == BLOCKS
    assert of_class(freed, HUNDRED)["live"] == of_class(before, HUNDRED)["live"]
    assert freed["orphan_slabs"] < left["orphan_slabs"]


def test_trim_is_counted(release: Runner) -> None:
    """Memory that malloc_trim gives back is a purge, and clean afterwards."""
    before, freed, trimmed = looks(release, "trims_8_mib")
    assert freed["dirty"] - before["dirty"] == 8 * MIB
    assert trimmed["dirty"] == 0
    assert trimmed["purge"]["steps"] > freed["purge"]["steps"]
    given = trimmed["purge"]["bytes"] - freed["purge"]["bytes"]
    assert given == freed["dirty"]
    assert trimmed["clean"] - freed["clean"] == given


def test_refusal_is_counted(release: Runner) -> None:
    """What the system does not serve is counted, however often it was asked, and nothing else."""
    before, after = looks(release, "is_refused_once")
    assert after["spans"]["refused"] > before["spans"]["refused"]
    assert after["spans"]["taken"] == before["spans"]["taken"]
    assert after["live"] == before["live"]
    assert after["reserved"] == before["reserved"]


@pytest.mark.parametrize("caches", ["mixed", "thread"])
def test_domains_of_idle_threads(release: Runner, caches: str) -> None:
    """Threads that do little share domains; the first thread has its own, which names it."""
    case = "six_threads_do_little"
    (running, ended), threads = seven_threads(release, case, caches)
    for stats in running, ended:
        named = [row["thread"] for row in stats["domains"] if row["thread"] != 0]
        assert named == [threads[-1]]
        assert 1 <= len(stats["domains"]) - len(named) <= max(2, os.cpu_count() or 1)
        of_processors = 0 if caches == "thread" else os.cpu_count() or 1
        assert stats["caches"] <= of_processors


@pytest.mark.parametrize("caches", ["mixed", "thread"])
def test_domains_of_busy_threads(release: Runner, caches: str) -> None:
    """Threads that do much get domains of their own, as long as there are places, and caches."""
    case = "six_threads_do_much"
    (running, ended), threads = seven_threads(release, case, caches)
    named = {row["thread"] for row in running["domains"]} - {0}
    places = max(8, 4 * len(os.sched_getaffinity(0)))
    assert named <= set(threads)
    assert threads[-1] in named
    assert len(named) == min(places, 7)
    of_processors = 0 if caches == "thread" else os.cpu_count() or 1
    assert running["caches"] <= 7 - len(named) + of_processors
    assert {row["thread"] for row in ended["domains"]} - {0} == {threads[-1]}
    assert ended["caches"] <= of_processors


@pytest.mark.parametrize("areas", ["libc", "own"])
def test_no_thread_has_a_domain_where_processors_have_caches(
    areas: str, release: Runner
) -> None:
    """Whether the C library registers threads for that, or leaves it to the library."""
    case = "six_threads_do_much"
    tunables = {} if areas == "libc" else {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
    looks_at, _ = seven_threads(release, case, "processor", **tunables)
    for stats in looks_at:
        named = {row["thread"] for row in stats["domains"]} - {0}
        if stats["caches"] == 0:
            (_, usual), _ = seven_threads(release, case, "processor")
            assert usual["caches"] == 0, "the system has restartable sequences"
            pytest.skip("the system has no restartable sequences")
        assert named == set()
        assert stats["caches"] <= (os.cpu_count() or 1)


@pytest.mark.parametrize("caches", ["mixed", "thread"])
def test_processors_have_no_slabs_that_threads_have_left(
    caches: str, release: Runner
) -> None:
    """Threads that start on all of them, one after the other, use the slabs of the first."""
    if len(os.sched_getaffinity(0)) < 3:
        pytest.skip("there are fewer than three processors")
    case = "threads_start_on_all_processors"
    options = {"ALLOD_CACHES": caches}
    result = release.run_well("statistics", case, **options)
    (stats,) = objects(result.stdout)
    assert stats["spans"]["taken"] > 36, "one for each size"
    assert sum(row["slabs"] for row in stats["classes"]) < 2 * 36


def test_contention_is_counted(release: Runner) -> None:
    """Threads that allocate spans at once wait for a lock, sooner or later."""
    before, after = looks(release, "threads_wait_for_locks")
    assert set(before["contention"].values()) == {0}
    assert sum(after["contention"].values()) > 0


def test_all_forms_agree(release: Runner) -> None:
    """JSON, the structure, mallinfo2 and malloc_info tell the same."""
    # Purged only when told: nothing may change between the looks.
    quiet = {"ALLOD_PURGE_DELAY": "-1"}
    result = release.run_well("statistics", "all_forms", **quiet)
    first, second, info, summary = objects(result.stdout)
    verify(first)
    assert without_the_system(first) == without_the_system(second)

    assert summary == {
        **{
            name: first[name]
            for name in (
                *("live", "live_blocks", "cached", "free_in_slabs", "dirty", "clean"),
                *("reserved", "huge", "huge_blocks"),
            )
        },
        "metadata": first["metadata"]["mapped"],
        "purges": first["purge"]["steps"],
        "purged": first["purge"]["bytes"],
        "moves": first["purge"]["moves"],
        "moved": first["purge"]["moved"],
        "remote_frees": first["remote"]["frees"],
        "contended": sum(first["contention"].values()),
    }
    assert summary["huge_blocks"] == 1
    assert summary["huge"] == 20 * MIB

    assert info == {
        "arena": summary["reserved"] - summary["huge"],
        "hblks": summary["huge_blocks"],
        "hblkhd": summary["huge"],
        "uordblks": summary["live"] - summary["huge"],
        "fordblks": summary["cached"] + summary["free_in_slabs"] + summary["dirty"],
        "keepcost": summary["dirty"],
    }

    xml = re.search(r"<malloc .*</malloc>", result.stdout, re.DOTALL)
    assert xml is not None
    root = ElementTree.fromstring(xml[0])
    sizes = [row.attrib for row in root.iter("size")]
    for row in sizes:
        of_size = of_class(first, int(row["to"]))
        assert int(row["from"]) <= int(row["to"])
        assert int(row["count"]) == of_size["free"] + of_size["cached"]
        assert int(row["total"]) == int(row["count"]) * int(row["to"])
    free = summary["cached"] + summary["free_in_slabs"]
    assert sum(int(row["total"]) for row in sizes) == free
    totals = {row.attrib["type"]: row.attrib for row in root.iter("total")}
    assert int(totals["fast"]["size"]) == summary["cached"]
    assert int(totals["rest"]["size"]) == summary["free_in_slabs"] + summary["dirty"]
    assert totals["mmap"]["count"] == "1"
    assert int(totals["mmap"]["size"]) == summary["huge"]
    system = {
        row.attrib["type"]: int(row.attrib["size"]) for row in root.iter("system")
    }
    assert system["current"] == summary["reserved"]
    assert system["max"] == first["spans"]["peak_used"]


def test_memory_nodes_have_rows(release: Runner) -> None:
    """As many as are kept apart; where there is one, none."""
    rows: dict[str, list[int]] = {}
    for nodes in ("1", "2"):
        options = {"ALLOD_PURGE_DELAY": "-1", "ALLOD_NODES": nodes}
        result = release.run_well("statistics", "all_forms", **options)
        stats = objects(result.stdout)[0]
        verify(stats)
        rows[nodes] = [row["node"] for row in stats["nodes"]]
    assert rows == {"1": [], "2": [0, 1]}


def test_receiver_may_allocate(release: Runner) -> None:
    """Whoever takes the text in may use the heap: no lock is held meanwhile."""
    case = "the_receiver_of_the_text_allocates"
    result = release.run_well("statistics", case)
    (stats,) = objects(result.stdout)
    assert len(stats["domains"]) >= 2


def human(size: int) -> str:
    """A size as the text has it: not rounded, but cut."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    unit = max(place for place in range(5) if place == 0 or size >= 1024**place)
    whole, rest = divmod(size, 1024**unit)
    tenths = f".{rest * 10 // 1024**unit}" if unit else ""
    return f"{whole}{tenths} {units[unit]}"


def expected_text(stats: Json) -> list[str]:
    """The lines of the text that say what the JSON says, but for those of the system."""
    spans, metadata, slow = stats["spans"], stats["metadata"], stats["slow_paths"]
    remote, purge, locks = stats["remote"], stats["purge"], stats["contention"]
    return [
        f"allod {stats['version']} statistics of process {stats['pid']},"
        f' "{stats["program"]}"',
        f"live       {human(stats['live'])} in {stats['live_blocks']} blocks"
        f" (huge: {human(stats['huge'])} in {stats['huge_blocks']});"
        f" never more than {human(spans['peak_used'])}",
        f"free       {human(stats['cached'])} at hand,"
        f" {human(stats['free_in_slabs'])} in slabs, {human(stats['dirty'])} dirty,"
        f" {human(stats['clean'])} given back",
        f"spans      {human(spans['used'])} in use, {human(spans['peak_used'])} at most;"
        f" {spans['taken']} taken, {spans['freed']} freed, {spans['refused']} refused",
        f"regions    {stats['regions']} of {human(stats['reserved'])} of addresses;"
        f" metadata {human(metadata['used'])} of {human(metadata['mapped'])}",
        f"slow paths {slow['refills']} refills, {slow['flushes']} flushes,"
        f" {slow['shrinks']} shrinks; slabs: {slow['slabs_created']} created,"
        f" {slow['slabs_retired']} retired, {slow['slabs_adopted']} adopted",
        f"remote     {remote['frees']} frees in {remote['batches']} batches,"
        f" {remote['collected']} collected",
        f"purges     {purge['steps']} of {human(purge['bytes'])};"
        f" {purge['moves']} moves of {human(purge['moved'])}",
        f"contention {locks['domains']} domains, {locks['registry']} registry,"
        f" {locks['space']} space, {locks['metadata']} metadata",
        *(
            f"{row['size']:9}{row['slabs']:9}{row['live']:9}{row['free']:9}{row['cached']:9}"
            for row in stats["classes"]
        ),
    ]


def of_system(text: str) -> list[dict[str, int]]:
    """What the system said, each time that it was asked: bytes and counts."""
    answers: list[dict[str, int]] = []
    for line in filter(str.strip, text.splitlines()):
        name, *words = line.split()
        if name == "minor":
            answers.append({"writable": 0})
        if name == "map":
            start, end = (int(word, 16) for word in words[0].split("-"))
            # Without a file, readable and writable.
            if words[4] == "0" and words[1].startswith("rw"):
                answers[-1]["writable"] += end - start
        elif len(words) == 2 and words[1] == "kB":
            answers[-1][name] = int(words[0]) * KIB
        elif name in ("minor", "major"):
            answers[-1][name] = int(words[0])
    return answers


# The system adds up what each processor has counted when that has become this much, for pages of
# three kinds.
PROCESSORS = os.cpu_count() or 1


UNCOUNTED = 3 * PROCESSORS * max(32, 2 * PROCESSORS) * os.sysconf("SC_PAGE_SIZE")


# What the looks themselves may touch.
LOOKING = MIB


@pytest.mark.parametrize(
    "case", ["agrees_with_the_system", "agrees_after_another_program"]
)
def test_text_json_and_the_system_agree(case: str, release: Runner) -> None:
    """Of the program before, which had more memory and more faults, nothing is left."""
    quiet = {"ALLOD_PURGE_DELAY": "-1"}
    result = release.run_well("statistics", case, **quiet)
    (stats,) = objects(result.stdout)
    verify(stats)
    lines = result.stderr.splitlines()
    for line in expected_text(stats):
        assert line in lines, result.stderr

    begin, before, after = of_system(result.stdout)
    slack = UNCOUNTED + LOOKING
    for name, ours in (("resident", "resident"), ("peak", "resident_peak")):
        assert abs(stats[ours] - before[name]) <= slack, (name, stats, before)
    assert abs(stats["resident"] - before["mapped_resident"]) <= slack
    assert stats["resident_peak"] - stats["resident"] >= 32 * MIB - slack
    # All live blocks were written to.
    touched = 1000 * 999 + 9 * MIB
    assert touched <= stats["live"] <= stats["spans"]["used"] <= stats["resident"]
    assert stats["spans"]["peak_used"] >= touched + 32 * MIB
    assert stats["resident_peak"] < 96 * MIB
    writable = stats["spans"]["used"] + stats["dirty"] + stats["metadata"]["used"]
    assert writable <= before["writable"] <= stats["reserved"] + 32 * MIB

    # The system counts from the start of the process, Allod from its own.
    for kind in ("minor", "major"):
        assert stats["faults"][kind] <= after[kind]
    own = before["minor"] - begin["minor"]
    assert own <= stats["faults"]["minor"] <= own + begin["minor"]
    if case == "agrees_after_another_program":
        pages = 96 * MIB // os.sysconf("SC_PAGE_SIZE")
        assert stats["faults"]["minor"] <= before["minor"] - pages + LOOKING // 4096
    (text,) = re.findall(r"^faults     (\d+) minor, (\d+) major$", result.stderr, re.M)
    assert 0 <= int(text[0]) - stats["faults"]["minor"] <= LOOKING // 4096
    (sizes,) = re.findall(r"^resident   (.*), (.*) at most$", result.stderr, re.M)
    assert sizes[1] == human(stats["resident_peak"])
