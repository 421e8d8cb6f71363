// Breakdown of resident memory, down to the requested bytes.

import { byId, explain, fill, h } from "./dom";
import { bytes, share } from "./format";
import type { State } from "./types";
import { likelyPool } from "./verdict";

interface Step {
  name: string;
  tone: string;
  bytes: number;
  why: string;
}

// Bytes added by rounding to size classes, estimated from samples; null without samples.
export function rounding(state: State): number | null {
  const { live } = state.profile;
  if (live.bytes === 0 || live.requested === 0) return null;
  return state.now.live * (1 - live.requested / live.bytes);
}

// The part of these that is in memory.
export function roundedInMemory(state: State): number {
  const touched = state.now.live === 0 ? 0 : state.residency.live / state.now.live;
  return Math.max(0, (rounding(state) ?? 0) * touched);
}

function steps(state: State): Step[] {
  const { residency } = state;
  const rounded = rounding(state);
  const lost = roundedInMemory(state);
  const all: Step[] = [
    { name: "not ours", tone: "foreign", bytes: residency.not_ours,
      why: "Resident memory that did not come from Allod: code, libraries, stacks, files and memory that the program mapped itself." },
    { name: "metadata", tone: "metadata", bytes: residency.metadata,
      why: "Allod's own records: bits, descriptors, the page map." },
    { name: "this page", tone: "page", bytes: residency.page,
      why: "The heap of the server that you are looking at. In no other figure." },
    { name: "dirty", tone: "dirty", bytes: residency.dirty,
      why: "Whole spans that are free, with their memory. They go back to the system after the purge delay, or now with Purge." },
    { name: "free in slabs", tone: "free", bytes: residency.free_in_slabs,
      why: "Free blocks beside blocks in use: fragmentation. It serves the next allocations of the same sizes." },
    { name: "cached", tone: "cached", bytes: residency.cached,
      why: "Free blocks that threads keep at hand." },
  ];
  if (rounded !== null) {
    all.push({ name: "rounding", tone: "rounding", bytes: lost,
      why: "What size classes add to the sizes that the program asked for; estimated from samples." });
  }
  all.push({ name: "live", tone: "live", bytes: residency.live - lost,
    why: rounded === null
      ? "Blocks that the program holds, with their rounding; turn sampling on to tell the two apart."
      : "What the program asked for, and holds." });
  return all;
}

// What is not Allod's, taken apart below its row.
function foreignRows(state: State, whole: number): Node[] {
  const { foreign } = state;
  const pool = likelyPool(foreign) ? `, likely ${foreign.pool}` : "";
  const parts: [string, number, string][] = [
    ["code", foreign.code, "The program and its libraries with their data, and code that is made at run time."],
    ["stacks", foreign.stacks, "Stacks of threads."],
    ["files", foreign.files, "Mapped files, and shared memory."],
    [`other${pool}`, foreign.other, foreign.pool === ""
      ? "Memory that the program, or a library, has mapped itself."
      : `Memory that the program has mapped itself: ${foreign.pool}, if anything. ${foreign.remedy}.`],
  ];
  return parts.filter(([, size]) => size >= whole / 200).map(([name, size, why]) =>
    explain(h("div", { class: "fall-part", tabindex: 0, role: "listitem",
      "aria-label": `of these, ${name}: ${bytes(size)}` },
      h("span", { class: "fall-name" }, name),
      h("span", { class: "fall-bytes" }, bytes(size)),
      h("span", { class: "fall-share" }, share(size, whole))), why));
}

export function drawWaterfall(state: State): void {
  const whole = Math.max(1, state.now.resident);
  let left = whole;
  const rows: Node[] = steps(state).map((step, index, all) => {
    const last = index === all.length - 1;
    const from = last ? 0 : left - step.bytes;
    left -= step.bytes;
    const bar = h("span", { class: "fall-bar" });
    bar.style.left = `${(100 * Math.max(0, from) / whole).toFixed(3)}%`;
    bar.style.width = `${(100 * step.bytes / whole).toFixed(3)}%`;
    bar.style.background = `var(--${step.tone})`;
    const row = h("div", { class: "fall-row", tabindex: 0, role: "listitem",
      "aria-label": `${step.name}: ${bytes(step.bytes)}, ${share(step.bytes, whole)}` },
      h("span", { class: "fall-name" }, step.name),
      h("span", { class: "fall-track" }, bar),
      h("span", { class: "fall-bytes" }, bytes(step.bytes)),
      h("span", { class: "fall-share" }, share(step.bytes, whole)));
    return explain(row, step.why);
  });
  rows.splice(1, 0, ...foreignRows(state, whole));
  const untouched = state.residency.untouched;
  fill(byId("waterfall"),
    h("h2", { id: "waterfall-title" }, "Where resident memory is"),
    h("div", { class: "fall", role: "list" },
      h("div", { class: "fall-row total" },
        h("span", { class: "fall-name" }, "resident"),
        h("span", { class: "fall-track" }, h("span", { class: "fall-bar whole", style: "left:0;width:100%" })),
        h("span", { class: "fall-bytes" }, bytes(whole)),
        h("span", { class: "fall-share" }, "")),
      ...rows),
    h("p", { class: "note" }, untouched > whole / 100
      ? `${bytes(untouched)} of the blocks in use were never written to, and take no memory.`
      : ""));
}
