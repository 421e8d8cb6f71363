"""Commands for gdb that tell what memory is to Allod, in a process or a core file.

gdb runs this file; `allod gdb` starts it so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import gdb

# gdb's own Python knows no packages of the user's.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
try:
    from allod.gdb_records import (
        ALL_BITS,
        CLEAN,
        DIRTY,
        FREED,
        LIBRARY,
        LIVE,
        PURGING,
        SLICE_SHIFT,
        USED,
        Event,
        Heap,
        HeapError,
        MixedSlab,
        Record,
        Slab,
        Whereabouts,
        id_of,
        is_heaps,
        number,
        place,
        whereabouts,
    )
finally:
    sys.path.pop(0)

ROW = 64
CELLS = {"in use": "#", "free": ".", "cached": "c", "on its way": "r", "waiting": "q"}
# In a slab with blocks of all sizes, what follows the first 16 bytes of a block; and what is of
# the program that lent the memory.
REST, OTHERS = "=", " "


def amount(count: int) -> str:
    kib = count / 1024
    return f"{kib:,.0f} KiB" if kib < 1024 else f"{kib / 1024:,.1f} MiB"


def owner_in_words(owner: gdb.Value | None) -> str:
    if owner is None:
        return "nobody: its thread has ended"
    if is_heaps(owner):
        name = owner["name"].string(errors="replace")
        return f"first-class heap {id_of(owner)}" + (f" ({name})" if name else "")
    if int(owner["thread"]) == 0:
        return f"domain {id_of(owner)}, which threads share"
    return f"domain {id_of(owner)} of thread {int(owner['thread'])}"


# --- blocks -----------------------------------------------------------------------------


def state_of(slab: Slab, index: int, found: Whereabouts) -> str:
    """A key of CELLS."""
    block = slab.block(index)
    if slab.is_free(index):
        return "free"
    if slab.is_remote(index) or block in found.sent:
        return "on its way"
    if block in found.cached:
        return "cached"
    if block in found.waiting:
        return "waiting"
    return "waiting" if slab.states and not slab.block_state(index) & LIVE else "in use"


def state_in_words(slab: Slab, index: int, found: Whereabouts) -> str:
    block = slab.block(index)
    state = state_of(slab, index, found)
    if state == "cached":
        thread = found.cached[block]
        if thread is None:
            return "free, kept by its heap for the next request"
        return "free, in " + (
            f"the cache of thread {thread}" if thread else "a cache that threads share"
        )
    if state == "on its way":
        by = f" by thread {found.sent[block]}" if block in found.sent else ""
        return f"freed{by or ' by another thread'}; its owner has not collected it"
    if state == "waiting":
        was_freed = block in found.waiting or slab.block_state(index) & FREED
        return "free: it was freed, and waits" if was_freed else "free: never allocated"
    return state


def describe(heap: Heap, address: int) -> Iterator[str]:
    """What is at an address, in lines."""
    if address in heap.guards.pages:
        yield from describe_guarded(heap, address)
        return
    span = heap.span_at(address)
    if span is None and heap.is_reserved(address):
        yield f"{address:#x} is in addresses that Allod has reserved and not used yet"
        return
    if span is None:
        yield f"{address:#x} is not Allod's memory"
        return
    slab = heap.slab_of(span)
    if slab is None:
        yield from describe_span(heap, address, span)
    elif isinstance(slab, MixedSlab):
        yield from describe_mixed(heap, address, slab)
    else:
        yield from describe_block(heap, address, slab)


def describe_block(heap: Heap, address: int, slab: Slab) -> Iterator[str]:
    index = (address - slab.base) // slab.block_bytes
    if index >= slab.capacity:
        yield f"{address:#x} is behind the last block of the slab at {slab.base:#x}"
    else:
        start = slab.block(index)
        yield _where(address, start) + f"a block of size class {slab.block_bytes}"
        state = state_in_words(slab, index, whereabouts(heap, slab))
        requested = slab.requested(index) if state == "in use" else ""
        yield from with_history(heap, start, state, requested)
        yield f"  block {index} of {slab.capacity} in the slab at {slab.base:#x}"
    yield f"  owner: {owner_in_words(heap.owner_of(slab))}"


def describe_mixed(heap: Heap, address: int, slab: MixedSlab) -> Iterator[str]:
    index = (address - slab.base) // slab.block_bytes
    if index not in slab.usable:
        yield f"{address:#x} is the program's own, beside what it gave to a heap"
        return
    start = slab.start_around(index)
    if start is None:
        yield f"{address:#x} is in free memory"
    else:
        size = (slab.last_of(start) + 1 - start) * slab.block_bytes
        yield _where(address, slab.block(start)) + f"a block of {size} bytes"
        state = state_in_words(slab, start, whereabouts(heap, slab))
        yield from with_history(heap, slab.block(start), state, "")
    yield f"  in the slab at {slab.base:#x}, with blocks of all sizes"
    yield f"  owner: {owner_in_words(heap.owner_of(slab))}"


def describe_guarded(heap: Heap, address: int) -> Iterator[str]:
    block = heap.guards.block_at(address)
    if block is None:
        yield f"{address:#x} is beside guarded blocks, or on a page that none has had"
        return
    inside = address - block.start
    what = f"guarded block {block.start:#x} of {block.record.requested} bytes"
    where = f"{inside} bytes into" if inside >= 0 else f"{-inside} bytes before"
    yield f"{address:#x} is {where} {what}"
    yield "  in use" if block.record.live else "  free"
    yield from events_in_words(block.record)


def describe_span(heap: Heap, address: int, span: gdb.Value) -> Iterator[str]:
    state, start = int(span["state"]), int(span["base"])
    size = number(span["size"]) << SLICE_SHIFT
    if state in (DIRTY, CLEAN, PURGING):
        yield f"{address:#x} is in {amount(size)} of free memory of Allod, in no block"
        return
    if state != USED:
        yield f"{address:#x} is in memory of Allod's own records"
        return
    yield _where(address, start) + f"a huge block of {amount(size)}"
    if span["is_kept"]:
        yield "  free, kept for the next request"
        return
    told = "free: it was freed, and waits" if heap.waits(span) else "in use"
    yield from with_history(heap, start, told, "")
    if place(span) in heap.huge_of_heaps:
        yield f"  owner: {owner_in_words(heap.huge_of_heaps[place(span)])}"


def _where(address: int, start: int) -> str:
    if address == start:
        return f"{address:#x} is "
    return f"{address:#x} is {address - start} bytes into {start:#x}, "


# --- histories ---------------------------------------------------------------------------


def with_history(heap: Heap, block: int, state: str, requested: str) -> Iterator[str]:
    """The state of a block, and who allocated and freed it, where the library keeps that."""
    record = heap.history.find(block)
    if record is not None:
        requested = f"requested with {record.requested} bytes"
    yield f"  {state}" + (f", {requested}" if requested else "")
    if record is not None:
        yield from events_in_words(record)


def events_in_words(record: Record) -> Iterator[str]:
    for event in record.events:
        yield f"  {event.what} by thread {event.thread}:"
        yield from stack_in_words(event)


def stack_in_words(event: Event) -> Iterator[str]:
    """From the function of Allod on that the program has called."""
    frames = list(event.frames)
    while len(frames) > 1 and _is_own(frames[0]) and _is_own(frames[1]):
        frames.pop(0)
    for number_of, address in enumerate(frames):
        # A call ends just before the address to which it returns.
        yield f"    #{number_of} {address:#x} {name_of(address - 1)}"


def _is_own(address: int) -> bool:
    return bool(LIBRARY.search(gdb.solib_name(address) or ""))


def name_of(address: int) -> str:
    """The function, file and line of an instruction, as far as gdb knows them."""
    functions = [*_functions_at(address)]
    line = gdb.find_pc_line(address)
    if functions and line.symtab is not None:
        if _is_own(address):
            # What the program has called is of interest, and not what that calls.
            called = functions[-1]
            return f"{called.print_name} at {called.symtab.filename}:{called.line}"
        outer = "".join(f", inlined into {each.print_name}" for each in functions[1:])
        return f"{functions[0].print_name} at {line.symtab.filename}:{line.line}{outer}"
    told = gdb.execute(f"info symbol {address:#x}", to_string=True) or ""
    if " in section" in told:
        return told.split(" in section")[0]
    return f"({gdb.solib_name(address) or 'in no file'})"


def _functions_at(address: int) -> Iterator[gdb.Symbol]:
    """Innermost first: all but the last are inlined."""
    block = gdb.block_for_pc(address)
    while block is not None and not block.is_static and not block.is_global:
        if block.function is not None:
            yield block.function
        block = block.superblock


# --- heaps -------------------------------------------------------------------------------


@dataclass
class ClassSum:
    """All slabs of one size class."""

    slabs: int = 0
    blocks: int = 0
    taken: int = 0
    size: int = 0

    def add(self, slab: Slab, waiting: frozenset[int]) -> None:
        self.slabs += 1
        self.blocks += slab.capacity
        self.size += slab.size
        self.taken += sum(
            state_of(slab, i, Whereabouts(waiting=waiting)) == "in use"
            for i in range(slab.capacity)
        )


@dataclass
class HeapSum:
    """What all spans are, in bytes but for the number of huge blocks."""

    classes: dict[int, ClassSum] = field(default_factory=dict)
    huge: int = 0
    huge_blocks: int = 0
    mixed: int = 0
    mixed_blocks: int = 0
    kept: int = 0
    by_state: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(5), 0))

    def add(self, heap: Heap, span: gdb.Value) -> None:
        slab = heap.slab_of(span)
        size, state = number(span["size"]) << SLICE_SHIFT, int(span["state"])
        if isinstance(slab, MixedSlab):
            self.mixed += len(slab.usable) * slab.block_bytes
            self.mixed_blocks += len(list(slab.blocks()))
        elif slab is not None:
            of_class = self.classes.setdefault(slab.block_bytes, ClassSum())
            of_class.add(slab, heap.history.waiting)
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
            yield (
                f"slabs with blocks of all sizes: {amount(self.mixed)},"
                f" {self.mixed_blocks:,} blocks"
            )
        present = self.kept + self.by_state[DIRTY] + self.by_state[PURGING]
        yield f"free: {amount(present)} in memory, {amount(self.by_state[CLEAN])} given back"
        yield "taken: in use, or in the cache of a thread"


# --- commands ----------------------------------------------------------------------------


class Question(gdb.Command):
    """A command that prints lines."""

    def lines(self, argument: str) -> Iterator[str]:
        raise NotImplementedError

    def invoke(self, argument: str, from_tty: bool) -> None:
        try:
            for line in self.lines(argument):
                print(line)
        except gdb.MemoryError as error:
            raise HeapError(
                f"allod: {error}. A core file has Allod's records unless `coredump_filter` left"
                " out private memory"
            ) from None


class Allod(gdb.Command):
    """What memory is to Allod. `help allod` lists what can be asked."""

    def __init__(self) -> None:
        super().__init__("allod", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


class BlockCommand(Question):
    """allod block ADDRESS: which block is there, whether it is in use, and who owns its slab."""

    def __init__(self) -> None:
        super().__init__("allod block", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def lines(self, argument: str) -> Iterator[str]:
        address = _address(argument)
        return describe(Heap(), address)


class SlabCommand(Question):
    """allod slab ADDRESS: the slab around an address, and the state of each of its blocks."""

    def __init__(self) -> None:
        super().__init__("allod slab", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def lines(self, argument: str) -> Iterator[str]:
        heap, address = Heap(), _address(argument)
        slab = heap.slab_at(address)
        if slab is None:
            raise HeapError(f"allod: no slab is at {address:#x}")
        if isinstance(slab, MixedSlab):
            yield f"slab at {slab.base:#x}: {slab.size:,} bytes, with blocks of all sizes"
            cells = mixed_cells(slab, whereabouts(heap, slab))
        else:
            yield (
                f"slab at {slab.base:#x}: {slab.size:,} bytes, {slab.capacity} blocks of size"
                f" class {slab.block_bytes}"
            )
            found = whereabouts(heap, slab)
            cells = "".join(
                CELLS[state_of(slab, i, found)] for i in range(slab.capacity)
            )
        yield f"  owner: {owner_in_words(heap.owner_of(slab))}"
        unit = " times 16 bytes" if isinstance(slab, MixedSlab) else ""
        for state, cell in CELLS.items():
            if count := cells.count(cell):
                of = " blocks" if unit and cell != CELLS["free"] else unit
                yield f"  {cell} {state}: {count}{of}"
        for first in range(0, slab.capacity, ROW):
            if row := cells[first : first + ROW].rstrip(OTHERS):
                yield f"  {slab.block(first):#x} {row}"


def mixed_cells(slab: MixedSlab, found: Whereabouts) -> str:
    cells = [
        CELLS["free"] if at in slab.usable else OTHERS for at in range(slab.capacity)
    ]
    for start, last in slab.blocks():
        cells[start] = CELLS[state_of(slab, start, found)]
        cells[start + 1 : last + 1] = REST * (last - start)
    return "".join(cells)


class HeapCommand(Question):
    """allod heap: slabs by size class, huge blocks, and what is free."""

    def __init__(self) -> None:
        super().__init__("allod heap", gdb.COMMAND_DATA, gdb.COMPLETE_NONE)

    def lines(self, argument: str) -> Iterator[str]:
        heap, found = Heap(), HeapSum()
        for span in heap.spans():
            found.add(heap, span)
        return found.lines()


def _address(argument: str) -> int:
    if not argument.strip():
        raise HeapError("allod: an address is missing")
    try:
        value = gdb.parse_and_eval(argument)
        if value.type.strip_typedefs().code == gdb.TYPE_CODE_ARRAY:
            return place(value)
        return int(value) & ALL_BITS
    except gdb.error as error:
        raise HeapError(f"allod: {error}") from None


for command in (Allod, BlockCommand, SlabCommand, HeapCommand):
    command()
