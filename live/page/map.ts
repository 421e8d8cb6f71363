// Fragmentation: memory as a grid of slices, and stacks that keep the emptiest slabs.

import * as api from "./api";
import { color, fill, h, hideTip, showTip } from "./dom";
import { bytes, count, share } from "./format";
import type { Panel } from "./panel";
import { StacksPanel } from "./stacks";
import { CLEAN, DIRTY, HUGE, OWN, SLAB, type Span, type State } from "./types";

const SLICE = 65536;
const MOST_CELLS = 40_000;
// On a phone, the map stays short.
const NARROW = 620;
const NARROW_ROWS = 44;
const NARROW_CELL = 6;

type Order = "address" | "emptiest" | "size";

// 0: empty, 1: full.
function fullness(span: Span): number {
  return span[5] === 0 ? 1 : 1 - span[6] / span[5];
}

function mix(from: number[], to: number[], part: number): string {
  return `rgb(${from.map((value, at) => Math.round(value + (to[at]! - value) * part)).join(" ")})`;
}

function rgb(name: string): number[] {
  const hex = color(name).slice(1);
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

export class MapPanel implements Panel {
  private readonly canvas = h("canvas", { tabindex: 0, role: "img" }) as HTMLCanvasElement;
  private readonly legend = h("div", { class: "legend" });
  private readonly summary = h("p", { class: "note" });
  private readonly bins = h("div", { class: "bins" });
  private readonly pins = new StacksPanel("pins");
  private spans: Span[] = [];
  private cells: Span[] = [];
  private order: Order = "address";
  private columns = 1;
  private cell = 6;
  private asked = 0;
  readonly element: HTMLElement;

  constructor() {
    const orders: [Order, string][] =
      [["address", "by address"], ["emptiest", "emptiest first"], ["size", "by block size"]];
    const select = h("select", {
      onchange: (event) => {
        this.order = (event.target as HTMLSelectElement).value as Order;
        this.draw();
      },
    }, ...orders.map(([value, text]) => h("option", { value }, text)));
    this.element = h("div", {},
      h("div", { class: "title-line" }, this.legend, h("label", {}, h("span", {}, "Order"), select)),
      this.canvas, this.summary,
      h("h3", {}, "How many slabs are how full"), this.bins,
      h("p", { class: "bins-unit" }, "blocks in use, % of the slab's blocks; above the bars: slabs"),
      h("h3", {}, "Who pins the emptiest slabs"), this.pins.element);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", hideTip);
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.drawLegend();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  update(state: State, opened: boolean): void {
    this.pins.update(state, opened);
    if (!opened && Date.now() - this.asked < 2000) return;
    this.asked = Date.now();
    void api.map().then(({ spans }) => {
      this.spans = spans;
      this.draw();
    }).catch(() => undefined);
  }

  private drawLegend(): void {
    const key = (tone: string, text: string) =>
      h("span", { class: "key" }, h("i", { style: `background:var(--${tone})` }), text);
    fill(this.legend,
      h("span", { class: "key" }, "slabs: empty ", h("i", { class: "ramp" }), " full"),
      key("huge", "huge block"), key("dirty", "free, dirty"), key("clean", "free, given back"),
      key("page", "records"));
  }

  private draw(): void {
    if (!this.element.isConnected || this.spans.length === 0) return;
    const order: Record<Order, (a: Span, b: Span) => number> = {
      address: () => 0,
      emptiest: (a, b) => a[2] - b[2] || fullness(a) - fullness(b),
      size: (a, b) => a[2] - b[2] || a[4] - b[4] || fullness(a) - fullness(b),
    };
    const ordered = this.order === "address" ? this.spans : [...this.spans].sort(order[this.order]);
    const slices = ordered.reduce((sum, span) => sum + span[1] / SLICE, 0);
    const width = Math.max(100, this.element.clientWidth);
    const most = innerWidth < NARROW ? Math.floor(width / NARROW_CELL) * NARROW_ROWS : MOST_CELLS;
    const stride = Math.max(1, Math.ceil(slices / most));
    this.cells = [];
    let at = 0;
    for (const span of ordered) {
      for (let end = at + span[1] / SLICE; at < end; ++at) if (at % stride === 0) this.cells.push(span);
    }
    this.paint();
    this.tell(slices, stride);
  }

  private paint(): void {
    const width = Math.max(100, this.element.clientWidth);
    this.cell = innerWidth < NARROW ? NARROW_CELL
      : this.cells.length < 1500 ? 12 : this.cells.length < 8000 ? 8 : 5;
    this.columns = Math.floor(width / this.cell);
    const rows = Math.ceil(this.cells.length / this.columns);
    const scale = devicePixelRatio;
    this.canvas.width = width * scale;
    this.canvas.height = rows * this.cell * scale;
    this.canvas.style.height = `${rows * this.cell}px`;
    const context = this.canvas.getContext("2d")!;
    context.scale(scale, scale);
    const empty = rgb("ramp-empty"), full = rgb("live");
    const flat: Record<number, string> = {
      [HUGE]: color("huge"), [DIRTY]: color("dirty"), [CLEAN]: color("clean"), [OWN]: color("page"),
    };
    const gap = this.cell > 6 ? 1 : 0.5;
    this.cells.forEach((span, index) => {
      context.fillStyle = span[2] === SLAB ? mix(empty, full, fullness(span)) : flat[span[2]]!;
      context.fillRect(index % this.columns * this.cell, Math.floor(index / this.columns) * this.cell,
        this.cell - gap, this.cell - gap);
    });
  }

  private tell(slices: number, stride: number): void {
    const slabs = this.spans.filter((span) => span[2] === SLAB);
    const bins = Array.from({ length: 10 }, () => ({ slabs: 0, free: 0 }));
    let free = 0, held = 0;
    for (const span of slabs) {
      const bin = bins[Math.min(9, Math.floor(fullness(span) * 10))]!;
      ++bin.slabs;
      bin.free += span[6] * span[4];
      free += span[6] * span[4];
      held += span[1];
    }
    const text = `${count(slabs.length)} slabs of ${bytes(held)}, ${share(free, held)} of it free blocks.` +
      ` One cell is ${bytes(stride * SLICE)}.`;
    this.summary.textContent = text;
    this.canvas.setAttribute("aria-label", `Map of ${count(slices)} slices. ${text}`);
    const most = Math.max(1, ...bins.map((bin) => bin.slabs));
    fill(this.bins, ...bins.map((bin, index) => {
      const bar = h("i");
      bar.style.height = `${(100 * bin.slabs / most).toFixed(1)}%`;
      return h("div", { title: `${bin.slabs} slabs, ${bytes(bin.free)} free in them` },
        h("span", {}, bin.slabs ? count(bin.slabs) : ""), h("b", {}, bar),
        h("span", { class: "muted" }, `${index * 10}–${index * 10 + 10}`));
    }));
  }

  private point(event: PointerEvent): void {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.cell);
    const row = Math.floor((event.clientY - box.top) / this.cell);
    const span = column < this.columns ? this.cells[row * this.columns + column] : undefined;
    if (!span) return hideTip();
    const [address, size, kind, owner, block, blocks, free, resident] = span;
    const what = kind === SLAB
      ? `slab of ${bytes(block)} blocks: ${blocks - free} of ${blocks} in use (${share(blocks - free, blocks)})`
      : { [HUGE]: "huge block", [DIRTY]: "free, memory kept", [CLEAN]: "free, memory given back" }[kind] ?? "Allod's records, and this page";
    const whose = owner ? `\nowner ${owner}` : "";
    showTip(`${what}\n${address}, ${bytes(size)}, ${bytes(resident)} resident${whose}`, event.clientX, event.clientY);
  }
}
