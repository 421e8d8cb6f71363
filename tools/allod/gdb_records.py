"""What the heap's own records say, read by gdb in a process or a core file.

Nothing is called in the process. Another thread may have been changing what is read.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

import gdb

SLICE_SHIFT = 16
SLICE = 1 << SLICE_SHIFT
CACHE_LINE = 64
WORD_BITS = 64
WORD = 8
ALL_BITS = 0xFFFFFFFFFFFFFFFF
# Of a slab's marks of remote frees, those of so many words lie in its record.
FIRST_WORDS = 7
# See slab/block_state.hpp.
LARGEST_NARROW = 128
NARROW_BYTES, WIDE_BYTES = 1, 4
LIVE, FREED = 1, 2
SLACK_SHIFT = 3
MOST_NARROW_SLACK = 31
# See space/page_map.hpp.
OWNER_SHIFT = 12
MIXED_CLASS = (1 << OWNER_SHIFT) // 24 - 2
# space::SpanState.
USED, DIRTY, CLEAN, PURGING, METADATA = range(5)
# See report/tracker.cpp.
MIX = 0x9E3779B97F4A7C15
RECORD_SHIFT = 46
NOTE_SECONDS = 2.0
LIBRARY = re.compile(r"/liballod[^/]*\.so")
OTHER_LIBRARY = re.compile(r"/liballod-(copies|ends|live|record)\.so")
HEAP = re.compile(r"(allod::thread::ProcessHeap<[^;]*>::heap_);")


class HeapError(gdb.GdbError):
    """One line for the user."""


def plain(value: gdb.Value) -> gdb.Value:
    """The number or pointer within an atomic, or within a struct of one member."""
    kind = value.type.strip_typedefs()
    while kind.code == gdb.TYPE_CODE_STRUCT:
        value = value[next(each for each in kind.fields() if hasattr(each, "bitpos"))]
        kind = value.type.strip_typedefs()
    return value


def number(value: gdb.Value) -> int:
    return int(plain(value))


def place(value: gdb.Value) -> int:
    """Where a value lies in the process."""
    assert value.address is not None
    return int(value.address)


def read_words(at: int, count: int) -> tuple[int, ...]:
    if count == 0:
        return ()
    memory = gdb.selected_inferior().read_memory(at, count * WORD)
    return struct.unpack(f"<{count}Q", memory)


def listed(head: gdb.Value, links: str) -> Iterator[gdb.Value]:
    """The elements of an intrusive list."""
    element = head["first_"]
    while int(element) != 0:
        yield element.dereference()
        element = element[links]["next"]


def bit_of(words: tuple[int, ...], index: int) -> bool:
    return bool(words[index // WORD_BITS] >> index % WORD_BITS & 1)


@dataclass
class Slab:
    """What the record of a slab says."""

    record: gdb.Value
    base: int = 0
    size: int = 0
    size_class: int = 0
    block_bytes: int = 0
    capacity: int = 0
    free: tuple[int, ...] = ()
    remote: tuple[int, ...] = ()
    states: bytes = b""
    end_of_bits: int = 0

    def __post_init__(self) -> None:
        at = place(self.record)
        slab = self.record
        self.base = int(slab["base"])
        self.size = number(slab["size"]) << SLICE_SHIFT
        self.size_class = int(slab["size_class_"])
        self.block_bytes = int(slab["block_bytes_"])
        self.capacity = int(slab["capacity_"])
        words = -(-self.capacity // WORD_BITS)
        behind = at + slab.type.sizeof
        self.free = read_words(behind, words)
        first = place(slab["remote_"])
        self.remote = read_words(first, min(words, FIRST_WORDS))
        self.end_of_bits = -(-(behind + WORD * words) // CACHE_LINE) * CACHE_LINE
        if words > FIRST_WORDS:
            self.remote += read_words(self.end_of_bits, words - FIRST_WORDS)
            self.end_of_bits += WORD * (words - FIRST_WORDS)
        # Where the library keeps states of blocks.
        offset = int(slab["behind_bits_"])
        if offset and self.size_class != MIXED_CLASS:
            memory = gdb.selected_inferior().read_memory(
                at + offset, self.capacity * self.state_bytes
            )
            self.states = bytes(memory)

    @property
    def state_bytes(self) -> int:
        return NARROW_BYTES if self.block_bytes <= LARGEST_NARROW else WIDE_BYTES

    def is_free(self, index: int) -> bool:
        return bit_of(self.free, index)

    def is_remote(self, index: int) -> bool:
        return bit_of(self.remote, index)

    def block_state(self, index: int) -> int:
        first = index * self.state_bytes
        return int.from_bytes(self.states[first : first + self.state_bytes], "little")

    def block(self, index: int) -> int:
        return self.base + index * self.block_bytes

    def requested(self, index: int) -> str:
        """How much the program has asked for, as the state of a block in use tells it."""
        if not self.states or not self.block_state(index) & LIVE:
            return ""
        slack = self.block_state(index) >> SLACK_SHIFT
        some = slack == MOST_NARROW_SLACK and self.state_bytes == NARROW_BYTES
        most = "at most " if some else ""
        return f"requested with {most}{self.block_bytes - slack} bytes"


class MixedSlab(Slab):
    """One with blocks of all sizes. An index is that of 16 bytes; see slab/mixed.hpp."""

    def __post_init__(self) -> None:
        super().__post_init__()
        words = self.capacity // WORD_BITS
        bits = read_words(self.end_of_bits, 2 * words)
        self.starts, self.lasts = bits[:words], bits[words:]
        mixed = self.record.cast(gdb.lookup_type("allod::slab::MixedSlab"))
        first, count = int(mixed["first_usable_"]), int(mixed["usable_"])
        self.usable = range(first, first + count)

    def start_around(self, index: int) -> int | None:
        """Where the block in use begins that has these 16 bytes; None: there is none."""
        for at in range(index, -1, -1):
            if self.is_free(at):
                return None
            if bit_of(self.starts, at):
                return at
        return None

    def last_of(self, start: int) -> int:
        return next(at for at in range(start, self.capacity) if bit_of(self.lasts, at))

    def blocks(self) -> Iterator[tuple[int, int]]:
        """The blocks in use: the first and the last index."""
        for at in range(self.capacity):
            if bit_of(self.starts, at):
                yield at, self.last_of(at)


@dataclass(frozen=True)
class Event:
    """Who allocated or freed a block: the thread, and return addresses."""

    what: str
    thread: int
    frames: tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """What the debug library, or the hardened one with `history`, knows of a block."""

    requested: int
    live: bool
    events: tuple[Event, ...]


class History:
    """Records of blocks, and the queue of those that the debug library keeps for a while."""

    def __init__(self) -> None:
        self.tables: gdb.Value | None = None
        try:
            tables = plain(gdb.parse_and_eval("'allod::(anonymous namespace)::tables'"))
            if int(tables) != 0:
                self.tables = tables.dereference()
        except gdb.MemoryError:
            raise
        except gdb.error:
            pass  # A library without records.

    @cached_property
    def waiting(self) -> frozenset[int]:
        """Blocks that the program has freed, and the heap has not got yet."""
        if self.tables is None:
            return frozenset()
        queue = self.tables["waiting"]
        places = queue["places_"]
        most = places.type.range()[1] + 1
        first, count = int(queue["first_"]), int(queue["count_"])
        blocks = read_words(place(places), 2 * most)[::2]
        return frozenset(blocks[(first + i) % most] for i in range(count))

    def find(self, block: int) -> Record | None:
        if self.tables is None:
            return None
        bucket = (block // WORD * MIX & ALL_BITS) >> RECORD_SHIFT
        at = self.tables["records"][bucket]
        while int(at) != 0:
            if int(at["block"]) == block:
                return self._told(at)
            at = at["next"]
        return None

    @staticmethod
    def _told(record: gdb.Value) -> Record:
        live = bool(record["live"])
        events = [_event(record, "allocated", "allocating_thread", "allocated_at")]
        if not live:
            events.append(_event(record, "freed", "freeing_thread", "freed_at"))
        return Record(int(record["bytes"]), live, tuple(events))


def _event(record: gdb.Value, what: str, thread: str, noted: str) -> Event:
    stack = record[noted]
    if stack.type.strip_typedefs().code == gdb.TYPE_CODE_PTR:
        if int(stack) == 0:
            return Event(what, int(record[thread]), ())
        stack = stack["stack"]
    frames = read_words(place(stack["frames"]), int(stack["depth"]))
    return Event(what, int(record[thread]), frames)


@dataclass(frozen=True)
class Guarded:
    """A sampled block on a page of its own; see guards/guards.hpp."""

    start: int
    record: Record


class Guards:
    """The pages of guarded samples."""

    def __init__(self) -> None:
        self.pages = range(0)
        try:
            base = number(gdb.parse_and_eval("'allod::Guards::base_'"))
            self.page = int(gdb.parse_and_eval("'allod::Guards::page_'"))
            length = int(gdb.parse_and_eval("'allod::Guards::bytes_'"))
            self.slots = gdb.parse_and_eval("'allod::Guards::slots_'")
        except gdb.MemoryError:
            raise
        except gdb.error:
            return  # A library without them.
        self.pages = range(base, base + length)

    def block_at(self, address: int) -> Guarded | None:
        """The block that is, or was last, on the page of an address; None: it is a guard."""
        page = (address - self.pages.start) // self.page
        if page % 2 == 0:
            return None
        slot = self.slots[page // 2]
        state = str(plain(slot["state"])).rpartition("::")[2]
        if state not in ("live", "freed"):
            return None
        live = state == "live"
        events = [_event(slot, "allocated", "allocating_thread", "allocated_at")]
        if not live:
            events.append(_event(slot, "freed", "freeing_thread", "freed_at"))
        start = self.pages.start + page * self.page + number(slot["offset"])
        return Guarded(start, Record(int(slot["bytes"]), live, tuple(events)))


class Heap:
    """The heap of the process."""

    def __init__(self) -> None:
        name = _heap_name()
        self.value = gdb.parse_and_eval(f"'{name}'")
        self.has_states = "HardenedPolicy" in name
        self.space = self.value["space_"]
        self.map = self.space["map_"]
        self.map_base = int(self.map["base_"])
        self.slab_type = gdb.lookup_type("allod::slab::Slab")
        self.domains = list(listed(self.value["domains_"], "links"))
        self.heaps = list(listed(self.value["heaps_"], "links"))
        self.history = History()
        self.guards = Guards()

    @cached_property
    def regions(self) -> list[tuple[range, range]]:
        """Of each region, the addresses that were handed out, and all."""
        lists = [self.space["regions_"]]
        lists += [each["regions"] for each in listed(self.space["sources_"], "links")]
        found = []
        for each in lists:
            for region in listed(each, "links"):
                base = int(region["base"])
                used, size = number(region["used"]), number(region["size"])
                found.append(
                    (
                        range(base, base + (used << SLICE_SHIFT)),
                        range(base, base + (size << SLICE_SHIFT)),
                    )
                )
        return found

    def is_reserved(self, address: int) -> bool:
        """Whether Allod will use the address, and has not yet."""
        return any(
            address in whole and address not in used for used, whole in self.regions
        )

    def _used_around(self, address: int) -> range | None:
        return next((used for used, _ in self.regions if address in used), None)

    def span_at(self, address: int) -> gdb.Value | None:
        """The record of what is there; None: nothing of Allod's."""
        region = self._used_around(address)
        if region is None:
            return None
        at = address & -SLICE
        # Of a free span, only the first and the last slice lead to its record.
        while at >= region.start:
            span = self._span_in(at)
            if span is not None and self._covers(span, address):
                return span
            at -= SLICE
        raise HeapError(f"allod: no record of {address:#x} is found")

    def _span_in(self, at: int) -> gdb.Value | None:
        cell = plain(self.map["spans_"][at - self.map_base >> SLICE_SHIFT])
        try:
            return None if int(cell) == 0 else cell.dereference()
        except gdb.MemoryError:
            raise HeapError(
                "allod: the core file lacks the map from addresses to blocks: the process had no "
                "mapping left for it, or its library is older than these commands"
            ) from None

    def _covers(self, span: gdb.Value, address: int) -> bool:
        base, size = int(span["base"]), number(span["size"]) << SLICE_SHIFT
        if not base <= address < base + size:
            return False
        # An old one may say anything. The map must lead back to it.
        if self._used_around(base) is None:
            return False
        back = self._span_in(base)
        return back is not None and place(back) == place(span)

    def slab_of(self, span: gdb.Value) -> Slab | None:
        """The slab that the span is, or None."""
        if int(span["home"]) == 0 or int(span["state"]) != USED:
            return None
        record = gdb.Value(place(span)).cast(self.slab_type.pointer()).dereference()
        if int(record["size_class_"]) == MIXED_CLASS:
            return MixedSlab(record)
        slab = Slab(record)
        owner = self.owner_of(slab)
        if owner is not None and is_heaps(owner):
            # The library leaves their states alone.
            slab.states = b""
        return slab

    def slab_at(self, address: int) -> Slab | None:
        span = self.span_at(address)
        return None if span is None else self.slab_of(span)

    def waits(self, span: gdb.Value) -> bool:
        """Whether a huge block was freed, though its span counts as used."""
        if int(span["base"]) in self.history.waiting:
            return True
        if not self.has_states or place(span) in self.huge_of_heaps:
            return False
        return not int(span["block_state"]) & LIVE

    @cached_property
    def _owners(self) -> list[tuple[range, gdb.Value]]:
        """Where their records lie."""
        return [
            (range(place(each), place(each) + each.type.sizeof), each)
            for each in (*self.domains, *self.heaps)
        ]

    def owner_of(self, slab: Slab) -> gdb.Value | None:
        """The domain, or the heap of a program's own; None: its thread has ended."""
        owner = number(slab.record["owner_"])
        return next((each for lies, each in self._owners if owner in lies), None)

    @cached_property
    def huge_of_heaps(self) -> dict[int, gdb.Value]:
        """The heaps of a program's own by where the records of their huge blocks lie."""
        return {
            place(span): each
            for each in self.heaps
            for span in listed(each["huge"], "links")
        }

    def spans(self) -> Iterator[gdb.Value]:
        """All spans of all regions, with a sign of life."""
        noted = time.monotonic()
        seen = 0
        for used, _ in self.regions:
            at = used.start
            while at < used.stop:
                span = self._span_in(at)
                if span is None or int(span["base"]) != at:
                    raise HeapError(f"allod: no record of {at:#x} is found")
                seen += 1
                if time.monotonic() - noted > NOTE_SECONDS:
                    noted = time.monotonic()
                    gdb.write(f"allod: {seen:,} spans ...\n", gdb.STDERR)
                yield span
                at += number(span["size"]) << SLICE_SHIFT


def is_heaps(owner: gdb.Value) -> bool:
    """Whether it is a heap of a program's own."""
    return any(each.name == "largest_slab" for each in owner.type.fields())


def id_of(owner: gdb.Value) -> int:
    """The number by which reports name a domain or a heap."""
    number_of = int(owner["tag"]) >> OWNER_SHIFT
    return number_of if is_heaps(owner) else number_of & ~1


@dataclass
class Whereabouts:
    """Where the blocks of a slab are that it counts as used, by their addresses."""

    # In magazines, with the thread that has them; 0: threads share them; None: their heap has them.
    cached: dict[int, int | None] = field(default_factory=dict)
    # Freed by other threads and not yet marked, with those threads.
    sent: dict[int, int] = field(default_factory=dict)
    # Freed, and kept from use for a while.
    waiting: frozenset[int] = frozenset()


def whereabouts(heap: Heap, slab: Slab) -> Whereabouts:
    owner = heap.owner_of(slab)
    found = Whereabouts(waiting=heap.history.waiting)
    if owner is not None and is_heaps(owner):
        _look_in_heap(owner, found)
    elif owner is not None:
        found.cached.update(_cached(owner, slab.size_class))
    for domain in heap.domains:
        found.sent.update(_sent(domain, slab))
    return found


def _look_in_heap(owner: gdb.Value, found: Whereabouts) -> None:
    newest = owner["newest"]
    for block in read_words(place(newest), newest.type.range()[1] + 1):
        if block:
            found.cached[block] = None
    if int(owner["hardening"]) != 0:
        waiting = owner["hardening"]["waiting"]
        blocks = waiting["blocks_"]
        both = blocks.type.range()[1] + 1
        first, end = int(waiting["first_"]), int(waiting["next_"])
        other = first ^ both // 2
        words = read_words(place(blocks), both)
        taken = words[first:end] + words[other : other + int(waiting["waiting_"])]
        found.waiting |= frozenset(taken)


def _cached(domain: gdb.Value, size_class: int) -> Iterator[tuple[int, int]]:
    for front in _fronts(domain):
        for name in ("magazines", "freed"):
            magazine = front[name][size_class]
            bottom, top = int(magazine["bottom"]), int(magazine["top"])
            for block in read_words(bottom, (top - bottom) // WORD):
                yield block, int(front["thread"])


def _fronts(domain: gdb.Value) -> Iterator[gdb.Value]:
    """A domain, and the caches of threads and processors over it."""
    yield domain
    cache = plain(domain["caches"])
    while int(cache) != 0:
        yield cache.dereference()
        cache = cache["next"]


def _sent(domain: gdb.Value, slab: Slab) -> Iterator[tuple[int, int]]:
    behind = gdb.lookup_type(f"{domain.type.strip_typedefs()}::Behind")
    after = gdb.Value(place(domain) + domain.type.sizeof)
    remote = after.cast(behind.pointer())["remote"]
    for i in range(remote.type.strip_typedefs().range()[1] + 1):
        batch = remote[i]
        if int(batch["slab"]) != place(slab.record) or int(batch["key"]) == 0:
            continue
        first = int(batch["key"]) % SLICE * WORD_BITS
        for bit in range(WORD_BITS):
            if int(batch["bits"]) >> bit & 1:
                yield slab.block(first + bit), int(domain["thread"])


def _heap_name() -> str:
    return _heap_name_in(tuple(each.filename or "" for each in gdb.objfiles()))


@cache
def _heap_name_in(files: tuple[str, ...]) -> str:
    """The variable of the library, whose type depends on which library it is. gdb searches all
    files for it, which takes some tenths of a second."""
    told = gdb.execute("info variables -q -n ::heap_$", to_string=True)
    names = HEAP.findall(told or "")
    if not names:
        raise HeapError(_why_no_heap())
    # The type comes before the name, and may contain the same words.
    return str(names[0]).rsplit(" ", 1)[-1]


def _why_no_heap() -> str:
    for each in gdb.objfiles():
        file = each.filename or ""
        if LIBRARY.search(file) and not OTHER_LIBRARY.search(file):
            build_id = getattr(each, "build_id", None) or "unknown"
            return (
                f"allod: no debug information of {file} (build id {build_id}): install allod-dbg, "
                "or name the folder that has it by `set debug-file-directory`"
            )
    return (
        "allod: no heap is found: the program does not run on Allod, gdb has no debug information "
        "of the library, or the core file lacks private memory (`coredump_filter`)"
    )
