// The flame graph of live, peak, total and grown memory.

import * as api from "./api";
import { fill, h } from "./dom";
import { FlameGraph, errorOf, folded, shortName } from "./flame_graph.js";
import "./flame_graph.css";
import { bytes, clock, count, share } from "./format";
import type { Panel } from "./panel";
import type { Flame, FlameNode, State } from "./types";

type Of = "live" | "peak" | "total" | "growth";

const KINDS: [Of, string][] = [
  ["live", "In use now"],
  ["growth", "What grew"],
  ["peak", "At the peak"],
  ["total", "Ever allocated"],
];

export class FlamePanel implements Panel {
  private of: Of = "live";
  private asked = 0;
  private readonly chart = h("div", { class: "flame" });
  private readonly empty = h("p", { class: "empty" });
  private readonly note = h("p", { class: "note" });
  private readonly facts = h("p", { class: "flame-facts" });
  private readonly found = h("span", { class: "muted", role: "status" });
  private readonly search = h("input", {
    type: "search", placeholder: "Find a function", "aria-label": "Find a function",
  }) as HTMLInputElement;
  private readonly wrappers = h("button", {
    title: "Functions that only pass allocations on, such as operator new or zmalloc",
    onclick: () => { this.folds = !this.folds; this.draw(); },
  }, "Wrappers");
  private folds = true;
  private readonly choices: HTMLElement[];
  private readonly graph: FlameGraph;
  private last: Flame | null = null;
  private state: State | null = null;
  readonly element: HTMLElement;

  constructor(private readonly range: () => [number, number] | null) {
    this.choices = KINDS.map(([of, text]) => h("button", {
      onclick: () => { this.choose(of); if (this.state) this.update(this.state, true); },
    }, text));
    this.graph = new FlameGraph(this.chart, {
      onShow: (node) => this.describe(node),
      onFound: (size) => {
        this.found.textContent = size === null ? "" : `${bytes(size)} (${share(size, this.last?.bytes ?? 0)})`;
      },
    });
    this.search.addEventListener("input", () => this.graph.search(this.search.value));
    this.element = h("div", {},
      h("div", { class: "title-line" },
        h("div", { class: "choices", role: "group" }, ...this.choices),
        this.wrappers,
        h("button", { class: "quiet", onclick: () => this.graph.zoom([]) }, "See all"),
        this.found, this.search),
      this.note, this.facts, this.empty, this.chart);
    this.choose("live");
  }

  choose(of: Of): void {
    if (of !== this.of) this.last = null;
    this.of = of;
    this.choices.forEach((choice, index) =>
      choice.setAttribute("aria-pressed", String(KINDS[index]![0] === of)));
  }

  update(state: State, opened: boolean): void {
    this.state = state;
    const off = state.profile.interval === 0 && state.profile.total_samples === 0;
    if (off) {
      this.note.textContent = state.profile.available
        ? "Sampling is off. Turn it on in the bar above; the program goes on meanwhile."
        : "This library has no profile.";
      this.chart.hidden = this.facts.hidden = true;
      return;
    }
    if (!opened && Date.now() - this.asked < 3000) return;
    this.asked = Date.now();
    if (!this.last) this.note.textContent = "The names of functions are looked up …";
    const [from, to] = this.range() ?? [0, 0];
    void api.flame(this.of, from, to).then((flame) => {
      if (flame.of !== this.of) return;
      this.last = flame;
      this.tell(flame);
      this.draw();
    }).catch((error) => {
      if (!this.last && !(error instanceof TypeError)) this.note.textContent = error instanceof Error ? error.message : String(error);
    });
  }

  private error(size: number, blocks: number): string {
    const error = errorOf(size, blocks, this.state?.profile.interval ?? 0);
    return error > 0 ? ` ± ${bytes(Math.min(error, size))}` : "";
  }

  private tell(flame: Flame): void {
    const samples = `from ${count(this.state!.profile.samples)} samples`;
    const size = `${bytes(flame.bytes)}${this.error(flame.bytes, flame.blocks)}`;
    const text: Record<Of, string> = {
      live: `${size} in use in about ${count(flame.blocks)} blocks, ${samples}.`,
      peak: `${size} in use when it was most, since the start or the reset.`,
      total: `${size} allocated in about ${count(flame.blocks)} blocks since the start or the reset.`,
      growth: `Stacks that hold more at ${clock(flame.to_ms)} than at ${clock(flame.from_ms)}: ` +
        `${size} together. Drag over the timeline to pick other moments.`,
    };
    this.note.textContent = text[this.of];
  }

  private draw(): void {
    const flame = this.last;
    this.wrappers.setAttribute("aria-pressed", String(!this.folds));
    if (!flame) return;
    const nothing = flame.bytes === 0;
    this.chart.hidden = this.facts.hidden = nothing;
    fill(this.empty, nothing
      ? this.of === "growth" ? "Nothing grew between the two moments." : "No sample yet." : "");
    this.empty.hidden = !nothing;
    if (!nothing) this.graph.show(this.folds ? folded(flame.root) : flame.root);
  }

  private describe(node: FlameNode): void {
    const whole = this.last?.bytes ?? 0;
    fill(this.facts,
      h("strong", { title: node.n }, shortName(node)),
      node.f ? h("span", { class: "muted" }, ` ${node.f}`) : "",
      `: ${bytes(node.v)}${this.error(node.v, node.b)} (${share(node.v, whole)}) in about ${count(node.b)} blocks`);
  }
}
