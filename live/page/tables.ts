// Tables of sizes, threads and heaps.

import { h } from "./dom";
import { bytes, count, share } from "./format";
import type { Panel } from "./panel";
import { Table } from "./table";
import type { ClassRow, HeapRow, State, ThreadRow } from "./types";

export function sizesPanel(): Panel {
  let most = 1;
  const requested = (row: ClassRow) =>
    row.sampled > 0 ? row.live_bytes * row.requested / row.sampled : NaN;
  const table = new Table<ClassRow>("Sizes", [
    { title: "Block size", hint: "What blocks are rounded to", key: (row) => row.size || Infinity,
      show: (row) => row.size ? bytes(row.size) : "huge" },
    { title: "In use", hint: "Bytes in blocks that the program holds", tone: "live",
      key: (row) => row.live_bytes, show: (row) => bytes(row.live_bytes),
      bar: (row) => row.live_bytes / most },
    { title: "Blocks", key: (row) => row.live, show: (row) => count(row.live) },
    { title: "Asked for", hint: "Without rounding; estimated from samples", narrow: false,
      key: (row) => requested(row) || 0,
      show: (row) => Number.isNaN(requested(row)) ? "–"
        : `${bytes(requested(row))} (${share(requested(row), row.live_bytes)})` },
    { title: "Free", hint: "Free blocks in slabs", tone: "free",
      key: (row) => row.free * row.size, show: (row) => bytes(row.free * row.size),
      bar: (row) => row.free * row.size / most },
    { title: "At hand", hint: "Free blocks that threads keep", narrow: false,
      key: (row) => row.cached * row.size, show: (row) => bytes(row.cached * row.size) },
    { title: "Slabs", narrow: false, key: (row) => row.slabs, show: (row) => count(row.slabs) },
    { title: "Full", hint: "Blocks in use, as a share of the slabs' blocks",
      key: (row) => row.live / Math.max(1, row.live + row.free + row.cached),
      show: (row) => share(row.live, row.live + row.free + row.cached) },
    { title: "Allocated", hint: "Blocks, while sampling was on", narrow: false,
      key: (row) => row.allocated, show: (row) => row.allocated ? count(row.allocated) : "–" },
  ], 1, "No block is in use.");
  return {
    element: table.element,
    update(state: State) {
      const rows = state.classes.filter((row) => row.live + row.free + row.cached > 0);
      most = Math.max(1, ...rows.map((row) => row.live_bytes));
      table.update(rows);
    },
  };
}

function classesOf(row: ThreadRow): Node {
  const most = Math.max(1, ...row.classes.map(([size, blocks]) => size * blocks));
  const rows = [...row.classes].sort((a, b) => b[0] * b[1] - a[0] * a[1]).slice(0, 24);
  return h("div", { class: "mini" }, ...rows.map(([size, blocks]) => {
    const bar = h("i");
    bar.style.width = `${(100 * size * blocks / most).toFixed(1)}%`;
    return h("div", {}, h("span", {}, bytes(size)), h("b", {}, bar),
      h("span", {}, `${bytes(size * blocks)} in ${count(blocks)}`));
  }));
}

export function threadsPanel(): Panel {
  let most = 1;
  const name = (row: ThreadRow) => row.thread === 0 ? "shared or ended" : row.name || "ended";
  const table = new Table<ThreadRow>("Threads", [
    { title: "Thread", text: true, key: name,
      show: (row) => h("span", {}, name(row), " ",
        h("span", { class: "muted whole" }, row.thread ? String(row.thread) : "")) },
    { title: "In use", hint: "Blocks in this thread's slabs that are in use, whoever holds them now",
      key: (row) => row.live, show: (row) => bytes(row.live), bar: (row) => row.live / most },
    { title: "Peak", hint: "The most that this page's server saw", key: (row) => row.peak,
      show: (row) => bytes(row.peak) },
    { title: "Total", hint: "Allocated while sampling was on", key: (row) => row.allocated,
      show: (row) => row.allocated ? bytes(row.allocated) : "–" },
    { title: "Blocks", narrow: false, key: (row) => row.blocks, show: (row) => count(row.blocks) },
    { title: "Allocations", hint: "While sampling was on", narrow: false,
      key: (row) => row.allocated_blocks,
      show: (row) => row.allocated_blocks ? count(row.allocated_blocks) : "–" },
    { title: "Frees", hint: "While sampling was on", narrow: false, key: (row) => row.freed_blocks,
      show: (row) => row.freed_blocks ? count(row.freed_blocks) : "–" },
    { title: "At hand", hint: "Free blocks that the thread keeps", key: (row) => row.cached,
      narrow: false, show: (row) => bytes(row.cached) },
  ], 1, "This library does not tell threads apart.", classesOf, (row) => `${row.domain}`);
  const note = h("p", { class: "note" });
  return {
    element: h("div", {}, note, table.element),
    update(state: State) {
      most = Math.max(1, ...state.threads.map((row) => row.live));
      note.textContent = `${count(state.now.threads)} threads. Those that allocate much own slabs and have a line of their own; the others share.`;
      table.update(state.threads);
    },
  };
}

export function heapsPanel(): Panel {
  let most = 1;
  const table = new Table<HeapRow>("Heaps", [
    { title: "Heap", text: true, key: (row) => row.name || `heap ${row.id}`,
      show: (row) => row.name || `heap ${row.id}` },
    { title: "In use", key: (row) => row.live, show: (row) => bytes(row.live),
      bar: (row) => row.live / most },
    { title: "Blocks", key: (row) => row.live_blocks, show: (row) => count(row.live_blocks) },
    { title: "Peak", key: (row) => row.peak_live, show: (row) => bytes(row.peak_live) },
    { title: "Holds", narrow: false, key: (row) => row.held, show: (row) => bytes(row.held) },
    { title: "Limit", narrow: false, key: (row) => row.limit || Infinity,
      show: (row) => row.limit ? bytes(row.limit) : "none" },
    { title: "Refused", narrow: false, key: (row) => row.refused, show: (row) => count(row.refused) },
  ], 1, "The program made no heaps of its own.");
  return {
    element: table.element,
    update(state: State) {
      const { now } = state;
      const heaps = [...state.heaps];
      if (now.reported_peak > 0) {
        heaps.push({ id: 0, name: "reported by the program", live: now.reported,
          live_blocks: now.reported_blocks, peak_live: now.reported_peak, held: now.reported,
          limit: 0, refused: 0 });
      }
      most = Math.max(1, ...heaps.map((row) => row.live));
      table.update(heaps);
    },
  };
}
