"""Commands for gdb that tell what memory is to Allod, in a process.

gdb runs this file; `allod gdb` starts it so. They read the heap's own records, and call nothing in
the process. Another thread may have been changing what is read. Core files lack the page map, which
is left out of them for its size.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import gdb

SLICE_SHIFT = 16
SLICE = 1 << SLICE_SHIFT
CACHE_LINE = 64
WORD_BITS = 64
# Of a slab's marks of remote frees, those of so many words lie in its record.
FIRST_WORDS = 7
LARGEST_NARROW = 128
NARROW_BYTES, WIDE_BYTES = 1, 4
# Of tags: see space/page_map.hpp.
OWNER_SHIFT = 12
FREE_TAG = 0xFFFFF << OWNER_SHIFT
ORPHAN_OWNER = 0xFFFFC
FIRST_HEAP_OWNER = 0x80000
MIXED_CLASS = (1 << OWNER_SHIFT) // 24 - 2
# space::SpanState.
USED, DIRTY, CLEAN, PURGING, METADATA = range(5)
NOTE_SECONDS = 2.0
ROW = 64
CELLS = {"in use": "#", "free": ".", "cached": "c", "on its way": "r", "waiting": "q"}


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


def read_words(at: int, count: int) -> list[int]:
    memory = gdb.selected_inferior().read_memory(at, count * 8)
    return [int.from_bytes(memory[i : i + 8], "little") for i in range(0, count * 8, 8)]


def listed(head: gdb.Value, links: str) -> Iterator[gdb.Value]:
    """The elements of an intrusive list."""
    element = head["first_"]
    while int(element) != 0:
        yield element.dereference()
        element = element[links]["next"]


def amount(count: int) -> str:
    kib = count / 1024
    return f"{kib:,.0f} KiB" if kib < 1024 else f"{kib / 1024:,.1f} MiB"


@dataclass
class Slab:
    """What the record of a slab says."""

    record: gdb.Value
    base: int = 0
    size: int = 0
    size_class: int = 0
    block_bytes: int = 0
    capacity: int = 0
    free: list[int] = field(default_factory=list)
    remote: list[int] = field(default_factory=list)
    states: bytes = b""

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
        if words > FIRST_WORDS:
            further = -(-(behind + 8 * words - at) // CACHE_LINE) * CACHE_LINE
            self.remote += read_words(at + further, words - FIRST_WORDS)
        if offset := int(slab["behind_bits_"]):
            memory = gdb.selected_inferior().read_memory(
                at + offset, self.capacity * self.state_bytes
            )
            self.states = bytes(memory)

    @property
    def state_bytes(self) -> int:
        """Of a block's state, where the library keeps one (debug, hardened)."""
        return NARROW_BYTES if self.block_bytes <= LARGEST_NARROW else WIDE_BYTES

    def is_free(self, index: int) -> bool:
        return bool(self.free[index // WORD_BITS] >> index % WORD_BITS & 1)

    def is_remote(self, index: int) -> bool:
        return bool(self.remote[index // WORD_BITS] >> index % WORD_BITS & 1)

    def was_freed(self, index: int) -> bool:
        """Whether the program has given it back, though the slab counts it as used."""
        return bool(self.states) and not self.states[index * self.state_bytes] & 1

    def block(self, index: int) -> int:
        return self.base + index * self.block_bytes


class Heap:
    """The heap of the process."""

    def __init__(self) -> None:
        name = _heap_name()
        self.value = gdb.parse_and_eval(f"'{name}'")
        # The debug library keeps freed blocks for a while, and its records of that lie elsewhere.
        self.in_use = "in use"
        if "DebugPolicy" in name:
            self.in_use = "in use, or freed lately: the debug library keeps such blocks"
        self.has_states = "HardenedPolicy" in name
        self.space = self.value["space_"]
        self.map = self.space["map_"]
        self.base = int(self.map["base_"])
        self.slab_type = gdb.lookup_type("allod::slab::Slab")
        self.domains = {
            int(domain["tag"]) >> OWNER_SHIFT & ~1: domain
            for domain in listed(self.value["domains_"], "links")
        }
        self._need_the_map()

    def _need_the_map(self) -> None:
        for region in listed(self.space["regions_"], "links"):
            cell = plain(self.map["tags_"])[
                int(region["base"]) - self.base >> SLICE_SHIFT
            ]
            try:
                number(cell)
            except gdb.MemoryError:
                raise HeapError(
                    "allod: the core file lacks the page map; ask the process while it lives"
                ) from None

    def tag(self, address: int) -> int:
        try:
            return number(plain(self.map["tags_"])[address - self.base >> SLICE_SHIFT])
        except gdb.MemoryError:
            return 0

    def span(self, address: int) -> gdb.Value:
        cell = plain(self.map["spans_"][address - self.base >> SLICE_SHIFT])
        return cell.dereference()

    def slab_of(self, span: gdb.Value) -> Slab | None:
        """The slab that the span is, or None."""
        if int(span["home"]) == 0 or int(span["state"]) != USED:
            return None
        return Slab(gdb.Value(place(span)).cast(self.slab_type.pointer()).dereference())

    def waits(self, span: gdb.Value) -> bool:
        """Whether a huge block was freed, though its span counts as used."""
        return self.has_states and not int(span["block_state"]) & 1

    def slab_at(self, address: int) -> Slab | None:
        if self.tag(address) in (0, FREE_TAG):
            return None
        return self.slab_of(self.span(address))

    def owner(self, slab: Slab) -> str:
        """Who owns it, and the domain if one does."""
        owner = self.tag(slab.base) >> OWNER_SHIFT
        if owner == ORPHAN_OWNER:
            return "nobody: its thread has ended"
        if owner >= FIRST_HEAP_OWNER:
            return f"first-class heap {owner}"
        domain = self.domains.get(owner & ~1)
        if domain is None:
            return f"domain {owner & ~1}"
        thread = int(domain["thread"])
        if thread == 0:
            return f"domain {owner & ~1}, which threads share"
        return f"domain {owner & ~1} of thread {thread}"

    def cached(self, slab: Slab) -> dict[int, int]:
        """Blocks of the slab's class that wait in magazines, with the thread that has them."""
        owner = self.tag(slab.base) >> OWNER_SHIFT & ~1
        domain = self.domains.get(owner)
        found: dict[int, int] = {}
        for front in self.fronts(domain) if domain is not None else ():
            for name in ("magazines", "freed"):
                magazine = front[name][slab.size_class]
                bottom, top = int(magazine["bottom"]), int(magazine["top"])
                for block in read_words(bottom, (top - bottom) // 8):
                    found[block] = int(front["thread"])
        return found

    @staticmethod
    def fronts(domain: gdb.Value) -> Iterator[gdb.Value]:
        """A domain, and the caches of threads over it."""
        yield domain
        cache = plain(domain["caches"])
        while int(cache) != 0:
            yield cache.dereference()
            cache = cache["next"]

    def sent(self, slab: Slab) -> dict[int, int]:
        """Blocks that other threads have freed and not yet marked, with those threads."""
        found: dict[int, int] = {}
        for domain in self.domains.values():
            behind = gdb.lookup_type(f"{domain.type.strip_typedefs()}::Behind")
            after = gdb.Value(place(domain) + domain.type.sizeof)
            remote = after.cast(behind.pointer())["remote"]
            for i in range(remote.type.strip_typedefs().range()[1] + 1):
                batch = remote[i]
                if int(batch["slab"]) != place(slab.record):
                    continue
                if int(batch["key"]) == 0:
                    continue
                word = int(batch["key"]) % SLICE
                for bit in range(WORD_BITS):
                    if int(batch["bits"]) >> bit & 1:
                        block = slab.block(word * WORD_BITS + bit)
                        found[block] = int(domain["thread"])
        return found

    def spans(self) -> Iterator[gdb.Value]:
        """All spans of all regions, with a sign of life."""
        noted = time.monotonic()
        seen = 0
        for region in listed(self.space["regions_"], "links"):
            at = int(region["base"])
            end = at + (number(region["used"]) << SLICE_SHIFT)
            while at < end:
                span = self.span(at)
                seen += 1
                if time.monotonic() - noted > NOTE_SECONDS:
                    noted = time.monotonic()
                    gdb.write(f"allod: {seen:,} spans ...\n", gdb.STDERR)
                yield span
                at += number(span["size"]) << SLICE_SHIFT


def _heap_name() -> str:
    """The variable of the library, whose type depends on which library it is."""
    listed_ones = gdb.execute("info variables -q -n ::heap_$", to_string=True)
    names = re.findall(
        r"(allod::thread::ProcessHeap<[^;]*>::heap_);", listed_ones or ""
    )
    if not names:
        raise HeapError(
            "allod: no heap is found: the program does not run on Allod, or gdb has no debug "
            "information of the library"
        )
    # The type comes before the name, and may contain the same words.
    return str(names[0]).rsplit(" ", 1)[-1]


def state_of(
    slab: Slab, index: int, cached: dict[int, int], sent: dict[int, int]
) -> str:
    """A key of CELLS."""
    block = slab.block(index)
    if slab.is_free(index):
        return "free"
    if slab.is_remote(index) or block in sent:
        return "on its way"
    if block in cached:
        return "cached"
    return "waiting" if slab.was_freed(index) else "in use"


def in_words(slab: Slab, index: int, heap: Heap) -> str:
    block = slab.block(index)
    cached, sent = heap.cached(slab), heap.sent(slab)
    state = state_of(slab, index, cached, sent)
    if state == "cached":
        whose = f"of thread {cached[block]}" if cached[block] else "that threads share"
        return f"free, in the cache {whose}"
    if state == "on its way":
        by = f" by thread {sent[block]}" if block in sent else " by another thread"
        return f"freed{by}; its owner has not collected it"
    if state == "waiting":
        return "free: it was freed, or was never allocated"
    return heap.in_use if state == "in use" else state


def describe(heap: Heap, address: int) -> Iterator[str]:
    """What is at an address, in lines."""
    tag = heap.tag(address)
    if tag == 0:
        yield f"{address:#x} is not Allod's memory"
        return
    if tag == FREE_TAG:
        yield f"{address:#x} is in free memory of Allod, in no block"
        return
    span = heap.span(address)
    slab = heap.slab_of(span)
    if slab is None:
        yield from describe_huge(heap, address, span)
        return
    if slab.size_class == MIXED_CLASS:
        yield f"{address:#x} is in the slab at {slab.base:#x}, with blocks of all sizes"
        yield f"  owner: {heap.owner(slab)}"
        return
    index = (address - slab.base) // slab.block_bytes
    if index >= slab.capacity:
        yield f"{address:#x} is behind the last block of the slab at {slab.base:#x}"
    else:
        start = slab.block(index)
        yield _where(address, start) + f"a block of size class {slab.block_bytes}"
        yield f"  {in_words(slab, index, heap)}"
        yield f"  block {index} of {slab.capacity} in the slab at {slab.base:#x}"
    yield f"  owner: {heap.owner(slab)}"


def describe_huge(heap: Heap, address: int, span: gdb.Value) -> Iterator[str]:
    if int(span["state"]) != USED:
        yield f"{address:#x} is in memory of Allod's own records, or free"
        return
    size = number(span["size"]) << SLICE_SHIFT
    yield _where(address, int(span["base"])) + f"a huge block of {amount(size)}"
    if span["is_kept"]:
        yield "  free, kept for the next request"
    elif heap.waits(span):
        yield "  free: it was freed, and waits"
    else:
        yield f"  {heap.in_use}"


def _where(address: int, start: int) -> str:
    if address == start:
        return f"{address:#x} is "
    return f"{address:#x} is {address - start} bytes into {start:#x}, "


class Allod(gdb.Command):
    """What memory is to Allod. `help allod` lists what can be asked."""

    def __init__(self) -> None:
        super().__init__("allod", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


class Block(gdb.Command):
    """allod block ADDRESS: which block is there, whether it is in use, and who owns its slab."""

    def __init__(self) -> None:
        super().__init__("allod block", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument: str, from_tty: bool) -> None:
        heap, address = Heap(), _address(argument)
        for line in describe(heap, address):
            print(line)


class SlabCommand(gdb.Command):
    """allod slab ADDRESS: the slab around an address, and the state of each of its blocks."""

    def __init__(self) -> None:
        super().__init__("allod slab", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument: str, from_tty: bool) -> None:
        heap, address = Heap(), _address(argument)
        slab = heap.slab_at(address)
        if slab is None:
            raise HeapError(f"allod: no slab is at {address:#x}")
        if slab.size_class == MIXED_CLASS:
            raise HeapError(
                "allod: the slab has blocks of all sizes, which gdb does not show"
            )
        cached, sent = heap.cached(slab), heap.sent(slab)
        states = [state_of(slab, i, cached, sent) for i in range(slab.capacity)]
        print(
            f"slab at {slab.base:#x}: {slab.size:,} bytes, {slab.capacity} blocks of size class"
            f" {slab.block_bytes}"
        )
        print(f"  owner: {heap.owner(slab)}")
        for state, cell in CELLS.items():
            if count := states.count(state):
                shown = heap.in_use if state == "in use" else state
                print(f"  {cell} {shown}: {count}")
        for first in range(0, slab.capacity, ROW):
            row = "".join(CELLS[state] for state in states[first : first + ROW])
            print(f"  {slab.block(first):#x} {row}")


@dataclass
class ClassSum:
    """All slabs of one size class."""

    slabs: int = 0
    blocks: int = 0
    taken: int = 0
    size: int = 0

    def add(self, slab: Slab) -> None:
        self.slabs += 1
        self.blocks += slab.capacity
        self.size += slab.size
        self.taken += sum(
            not (slab.is_free(i) or slab.is_remote(i) or slab.was_freed(i))
            for i in range(slab.capacity)
        )


@dataclass
class HeapSum:
    """What all spans are, in bytes but for the number of huge blocks."""

    classes: dict[int, ClassSum] = field(default_factory=dict)
    huge: int = 0
    huge_blocks: int = 0
    mixed: int = 0
    kept: int = 0
    by_state: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(5), 0))

    def add(self, heap: Heap, span: gdb.Value) -> None:
        slab = heap.slab_of(span)
        size, state = number(span["size"]) << SLICE_SHIFT, int(span["state"])
        if slab is not None and slab.size_class == MIXED_CLASS:
            self.mixed += size
        elif slab is not None:
            self.classes.setdefault(slab.block_bytes, ClassSum()).add(slab)
        elif state != USED:
            self.by_state[state] += size
        elif span["is_kept"] or heap.waits(span):
            self.kept += size
        else:
            self.huge += size
            self.huge_blocks += 1

    def lines(self) -> Iterator[str]:
        yield f"{'size class':>10} {'slabs':>8} {'memory':>14} {'blocks':>10} {'taken':>10}"
        for block_bytes, each in sorted(self.classes.items()):
            yield (
                f"{block_bytes:>10} {each.slabs:>8,} {amount(each.size):>14}"
                f" {each.blocks:>10,} {each.taken:>10,}"
            )
        yield f"huge blocks: {self.huge_blocks:,}, {amount(self.huge)}"
        if self.mixed:
            yield f"slabs with blocks of all sizes: {amount(self.mixed)}"
        present = self.kept + self.by_state[DIRTY] + self.by_state[PURGING]
        yield f"free: {amount(present)} in memory, {amount(self.by_state[CLEAN])} given back"


class HeapCommand(gdb.Command):
    """allod heap: slabs by size class, huge blocks, and what is free."""

    def __init__(self) -> None:
        super().__init__("allod heap", gdb.COMMAND_DATA, gdb.COMPLETE_NONE)

    def invoke(self, argument: str, from_tty: bool) -> None:
        heap, found = Heap(), HeapSum()
        for span in heap.spans():
            found.add(heap, span)
        for line in found.lines():
            print(line)
        print(f"taken: {heap.in_use}; or in the cache of a thread")


def _address(argument: str) -> int:
    if not argument.strip():
        raise HeapError("allod: an address is missing")
    try:
        return int(gdb.parse_and_eval(argument)) & 0xFFFFFFFFFFFFFFFF
    except gdb.error as error:
        raise HeapError(f"allod: {error}") from None


for command in (Allod, Block, SlabCommand, HeapCommand):
    command()
