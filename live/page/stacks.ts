// Lists of call stacks: leak suspects, short-lived allocations, and what pins slabs.

import * as api from "./api";
import { fill, h } from "./dom";
import { shortName } from "./flame_graph.js";
import { bytes, count, duration } from "./format";
import type { Panel } from "./panel";
import { type Column, Table } from "./table";
import type { Frame, StackRow, State } from "./types";

type Kind = "suspects" | "temporary" | "pins";

// What the user wrote, and what it allocated through.
function culprit(row: StackRow): Frame {
  return row.frames[row.who] ?? { n: "unknown" };
}

function stack(row: StackRow): Node {
  return h("ol", { class: "stack" }, ...row.frames.map((frame, index) =>
    h("li", { class: index < row.who ? "muted" : "", title: frame.n }, shortName(frame),
      frame.f ? h("span", { class: "muted" }, ` ${frame.f}`) : "")));
}

// Allows line breaks between the parts of functions and paths.
function breakable(name: string): (Node | string)[] {
  return name.split(/(?<=::|[(,</])/).flatMap((part) => [part, h("wbr")]);
}

const WHO: Column<StackRow> = {
  title: "Allocated in", text: true, key: (row) => shortName(culprit(row)),
  show: (row) => {
    const frame = culprit(row);
    const through = row.who > 0 ? row.frames[row.who - 1] : undefined;
    return h("span", { class: "who-cell" },
      h("code", { title: frame.n }, ...breakable(shortName(frame))),
      through ? h("span", { class: "muted", title: through.n }, ` through ${shortName(through)}`) : "",
      frame.f ? h("span", { class: "muted" }, " ", ...breakable(frame.f)) : "");
  },
};
const freed = (row: StackRow) => `${(row.freed / 10).toFixed(row.freed % 10 ? 1 : 0)} %`;

const COLUMNS: Record<Kind, Column<StackRow>[]> = {
  suspects: [
    WHO,
    { title: "Grows by", hint: "Bytes in a minute, over the moments kept", key: (row) => row.rate,
      show: (row) => `${bytes(row.rate)}/min` },
    { title: "In use", key: (row) => row.bytes, show: (row) => bytes(row.bytes) },
    { title: "Mean age", narrow: false, key: (row) => row.age_ms, show: (row) => duration(row.age_ms) },
    { title: "Freed", hint: "Share of its allocations that were freed", narrow: false,
      key: (row) => row.freed, show: freed },
  ],
  temporary: [
    WHO,
    { title: "Allocated", hint: "Bytes, since the start or the reset", key: (row) => row.bytes,
      show: (row) => bytes(row.bytes) },
    { title: "Blocks", narrow: false, key: (row) => row.blocks, show: (row) => count(row.blocks) },
    { title: "Mean life", key: (row) => row.lifetime_ms, show: (row) => duration(row.lifetime_ms) },
    { title: "Freed", narrow: false, key: (row) => row.freed, show: freed },
  ],
  pins: [
    WHO,
    { title: "Pins", hint: "Free bytes beside its blocks, in slabs that are at most a quarter full; ± two standard deviations",
      key: (row) => row.rate,
      show: (row) => row.error ? `${bytes(row.rate)} ± ${bytes(row.error)}` : bytes(row.rate) },
    { title: "In use", hint: "Bytes of its blocks there", key: (row) => row.bytes,
      show: (row) => bytes(row.bytes) },
    { title: "Blocks", narrow: false, key: (row) => row.blocks, show: (row) => count(row.blocks) },
  ],
};

const EMPTY: Record<Kind, string> = {
  suspects: "Nothing grows steadily. Growth shows after a few moments of sampling.",
  temporary: "No sampled block was freed yet.",
  pins: "Of what is free there, no sample tells who pins it.",
};
const OFF = "Sampling is off. Turn it on in the bar above; the program goes on meanwhile.";

export class StacksPanel implements Panel {
  private readonly table: Table<StackRow>;
  private readonly lifetimes = h("div", { class: "bins lifetimes" });
  private readonly histogram = h("div", {},
    h("h3", {}, "How long freed blocks lived"), this.lifetimes,
    h("p", { class: "bins-unit" }, "lifetime from … on; the height of a bar: bytes"));
  private readonly note = h("p", { class: "note" });
  private asked = 0;
  readonly element: HTMLElement;

  constructor(private readonly kind: Kind) {
    this.table = new Table<StackRow>(kind, COLUMNS[kind], 1, EMPTY[kind], stack,
      (row) => row.frames.map((frame) => frame.n).join(";"));
    this.element = h("div", {}, kind === "temporary" ? this.histogram : "", this.note, this.table.element);
  }

  update(state: State, opened: boolean): void {
    const off = state.profile.interval === 0 && state.profile.total_samples === 0;
    this.note.textContent = off ? OFF : "";
    this.table.element.hidden = this.histogram.hidden = off;
    if (off) return;
    if (this.kind === "temporary") this.drawLifetimes(state);
    if (!opened && Date.now() - this.asked < 3000) return;
    this.asked = Date.now();
    void api.stacks(this.kind).then(({ rows, free }) => {
      this.table.update(rows);
      if (free === undefined) return;
      const told = rows.reduce((sum, row) => sum + row.rate, 0);
      this.note.textContent = `${bytes(free)} are free in slabs that are at most a quarter full. ` +
        `Samples tell who pins ${bytes(told)} of it.`;
    }).catch((error) => {
      // Of a program that has ended, the last rows stay.
      if (!(error instanceof TypeError)) this.note.textContent = String(error);
    });
  }

  // By powers of two of milliseconds; the longest lifetimes are combined.
  private drawLifetimes(state: State): void {
    const shown = 20;
    const sums = state.profile.lifetimes.slice(0, shown).map(([bytes_]) => bytes_);
    sums.push(state.profile.lifetimes.slice(shown).reduce((sum, [more]) => sum + more, 0));
    const most = Math.max(1, ...sums);
    fill(this.lifetimes, ...sums.map((sum, index) => {
      const from = index === 0 ? "0 ms" : duration(2 ** (index - 1));
      const bar = h("i");
      bar.style.height = `${(100 * sum / most).toFixed(1)}%`;
      return h("div", { title: `from ${from}: ${bytes(sum)} lived so long` },
        h("span", {}, ""), h("b", {}, bar),
        h("span", { class: "muted" }, index % 4 === 0 ? from.replace(/ \d+ s$/, "") : ""));
    }));
  }
}
