"""What statistics have in them, in each of their forms, and how that holds together."""

from __future__ import annotations

import json
import re
from typing import Any

Json = dict[str, Any]


KIB, MIB = 1 << 10, 1 << 20


SLICE = 64 * KIB


BLOCKS = 1000


HUNDRED = 112
"""What a block of 100 bytes offers."""


FIELDS = {
    "version": None,
    "pid": None,
    "program": None,
    "resident": None,
    "resident_peak": None,
    "live": None,
    "live_blocks": None,
    "huge": None,
    "huge_blocks": None,
    "cached": None,
    "free_in_slabs": None,
    "dirty": None,
    "clean": None,
    "reserved": None,
    "regions": None,
    "spans": {"used", "peak_used", "taken", "freed", "refused"},
    "metadata": {"mapped", "used"},
    "slow_paths": {
        "refills",
        "flushes",
        "shrinks",
        "slabs_created",
        "slabs_retired",
        "slabs_adopted",
    },
    "remote": {"frees", "batches", "collected"},
    "purge": {"steps", "bytes", "moves", "moved"},
    "contention": {"domains", "registry", "space", "metadata"},
    "faults": {"minor", "major"},
    "orphan_slabs": None,
    "caches": None,
    "nodes": None,
    "classes": None,
    "domains": None,
    "heaps": None,
}


CLASS_FIELDS = {"size", "slabs", "live", "free", "cached"}


NODE_FIELDS = {"node", "used", "dirty", "clean"}


DOMAIN_FIELDS = {"id", "thread", "refills", "flushes", "remote_frees", "collected"}


HUMAN = r"(?:\d+ B|\d+\.\d [KMGTPE]iB)"


PEAK = rf"never more than {HUMAN}"


TEXT = re.compile(
    rf"""allod \d+\.\d+\.\d+ statistics of process (?P<pid>\d+), "(?P<program>[^"]+)"
live       {HUMAN} in (?P<live_blocks>\d+) blocks \(huge: {HUMAN} in (?P<huge_blocks>\d+)\); {PEAK}
resident   {HUMAN}, {HUMAN} at most
free       {HUMAN} at hand, {HUMAN} in slabs, {HUMAN} dirty, {HUMAN} given back
spans      {HUMAN} in use, {HUMAN} at most; \d+ taken, \d+ freed, \d+ refused
regions    \d+ of {HUMAN} of addresses; metadata {HUMAN} of {HUMAN}
domains    \d+ active, \d+ shared, \d+ ever at once; \d+ caches; \d+ orphaned slabs
slow paths \d+ refills, \d+ flushes, \d+ shrinks; slabs: \d+ created, \d+ retired, \d+ adopted
remote     \d+ frees in \d+ batches, \d+ collected
purges     \d+ of {HUMAN}; \d+ moves of {HUMAN}
contention \d+ domains, \d+ registry, \d+ space, \d+ metadata
faults     \d+ minor, \d+ major
(?:node \d+: {HUMAN} in use, {HUMAN} dirty, {HUMAN} given back
)*     size    slabs     live     free   cached
(?P<classes>(?:[ \d]{{9}}[ \d]{{9}}[ \d]{{9}}[ \d]{{9}}[ \d]{{9}}\n)*)"""
)


def objects(text: str) -> list[Json]:
    """The lines of JSON objects in a text."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def verify(stats: Json) -> None:
    """The numbers hold together, while no thread is doing anything."""
    assert set(stats) == set(FIELDS)
    for name, parts in FIELDS.items():
        assert parts is None or set(stats[name]) == parts, name
    assert 0 < stats["resident"] <= stats["resident_peak"]
    assert stats["program"] in ("statistics", "settings")

    slab_bytes = 0
    for row in stats["classes"]:
        assert set(row) == CLASS_FIELDS
        assert row["slabs"] > 0
        blocks = row["live"] + row["free"] + row["cached"]
        # Each slab has as many blocks, and is as many slices as those need.
        assert blocks % row["slabs"] == 0, row
        capacity = blocks // row["slabs"]
        assert capacity > 0
        slab_bytes += row["slabs"] * -(-capacity * row["size"] // SLICE) * SLICE
    sizes = [row["size"] for row in stats["classes"]]
    assert sizes == sorted(set(sizes))

    def total(kind: str) -> int:
        return sum(int(row[kind]) * int(row["size"]) for row in stats["classes"])

    assert stats["live"] == total("live") + stats["huge"]
    assert (
        stats["live_blocks"]
        == sum(row["live"] for row in stats["classes"]) + stats["huge_blocks"]
    )
    assert stats["cached"] == total("cached")
    assert stats["free_in_slabs"] == total("free")

    spans = stats["spans"]
    assert spans["used"] == slab_bytes + stats["huge"]
    assert spans["used"] <= spans["peak_used"]
    in_use = sum(row["slabs"] for row in stats["classes"]) + stats["huge_blocks"]
    assert spans["taken"] - spans["freed"] == in_use
    assert spans["used"] + stats["dirty"] + stats["clean"] <= stats["reserved"]
    for row in stats["nodes"]:
        assert set(row) == NODE_FIELDS
    if stats["nodes"]:
        of_nodes = {
            name: sum(row[name] for row in stats["nodes"])
            for name in ("used", "dirty", "clean")
        }
        assert of_nodes["used"] == spans["used"]
        assert of_nodes["dirty"] == stats["dirty"]
        assert of_nodes["clean"] == stats["clean"]
    assert (stats["regions"] == 0) == (stats["reserved"] == 0)
    assert 0 < stats["metadata"]["used"] <= stats["metadata"]["mapped"]
    for domain in stats["domains"]:
        assert set(domain) == DOMAIN_FIELDS


def of_class(stats: Json, size: int) -> Json:
    """The row of a class; zeros when it has no slab."""
    for row in stats["classes"]:
        if row["size"] == size:
            return dict(row)
    return dict.fromkeys(CLASS_FIELDS, 0)
