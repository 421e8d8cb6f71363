// The flame graph of live, peak, total and grown memory.

import flamegraph from "d3-flame-graph";
import "./node_modules/d3-flame-graph/dist/d3-flamegraph.css";
import { select } from "d3-selection";
import * as api from "./api";
import { color, fill, h } from "./dom";
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

interface Drawn {
  name: string;
  value: number;
  node: FlameNode;
  children: Drawn[];
}

// Labels are short; the line below the graph shows the full name.
function label(name: string): string {
  return name.replaceAll("(anonymous namespace)::", "");
}

function drawn(node: FlameNode): Drawn {
  return { name: label(node.n), value: node.v, node, children: (node.c ?? []).map(drawn) };
}

function hue(text: string): number {
  let hash = 0;
  // The namespace of a C++ name determines the colour, so related functions look alike.
  for (const character of text.replace(/[(<].*$/, "").split("::")[0]!) {
    hash = (hash * 31 + character.charCodeAt(0)) >>> 0;
  }
  return hash % 1000 / 1000;
}

export class FlamePanel implements Panel {
  private of: Of = "live";
  private asked = 0;
  private shape = "";
  private readonly chart = h("div", { class: "flame" });
  private readonly note = h("p", { class: "note" });
  private readonly facts = h("p", { class: "flame-facts", "aria-live": "polite" });
  private readonly search = h("input", {
    type: "search", placeholder: "Find a function", "aria-label": "Find a function",
  }) as HTMLInputElement;
  private readonly choices: HTMLElement[];
  private graph: ReturnType<typeof flamegraph> | null = null;
  private last: Flame | null = null;
  private state: State | null = null;
  readonly element: HTMLElement;

  constructor(private readonly range: () => [number, number] | null) {
    this.choices = KINDS.map(([of, text]) => h("button", {
      onclick: () => { this.choose(of); if (this.state) this.update(this.state, true); },
    }, text));
    this.search.addEventListener("input", () => this.graph?.search(this.search.value));
    this.element = h("div", {},
      h("div", { class: "title-line" }, h("div", { class: "choices", role: "group" }, ...this.choices), this.search),
      this.note, this.facts, this.chart);
    let width = 0;
    new ResizeObserver(() => {
      if (Math.abs(this.chart.clientWidth - width) < 2) return;
      width = this.chart.clientWidth;
      this.draw(true);
    }).observe(this.chart);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(true));
    this.choose("live");
  }

  choose(of: Of): void {
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
      this.chart.replaceChildren();
      return;
    }
    if (!opened && Date.now() - this.asked < 3000) return;
    this.asked = Date.now();
    const [from, to] = this.range() ?? [0, 0];
    void api.flame(this.of, from, to).then((flame) => {
      this.last = flame;
      this.tell(flame);
      this.draw(false);
    }).catch((error) => { this.note.textContent = String(error); });
  }

  private tell(flame: Flame): void {
    const samples = `from ${count(this.state!.profile.samples)} samples`;
    const text: Record<Of, string> = {
      live: `${bytes(flame.bytes)} in use in about ${count(flame.blocks)} blocks, ${samples}.`,
      peak: `${bytes(flame.bytes)} in use when it was most, since the start or the reset.`,
      total: `${bytes(flame.bytes)} allocated in about ${count(flame.blocks)} blocks since the start or the reset.`,
      growth: `Stacks that hold more at ${clock(flame.to_ms)} than at ${clock(flame.from_ms)}: ` +
        `${bytes(flame.bytes)} together. Drag over the timeline to pick other moments.`,
    };
    this.note.textContent = text[this.of];
  }

  private draw(anew: boolean): void {
    const flame = this.last;
    const width = this.chart.clientWidth;
    if (!flame || width === 0) return;
    if (flame.bytes === 0) {
      this.graph = null;
      this.shape = "";
      fill(this.chart, h("p", { class: "empty" }, this.of === "growth" ? "Nothing grew between the two moments." : "No sample yet."));
      return;
    }
    // Redrawn only for another graph, to keep the zoom.
    const shape = `${this.of} ${width} ${flame.bytes} ${flame.from_ms} ${flame.to_ms}`;
    if (!anew && shape === this.shape) return;
    const same = this.shape.split(" ")[0] === this.of;
    this.shape = shape;
    const data = drawn(flame.root);
    if (this.graph && same && !anew) {
      this.graph.update(data);
    } else {
      this.build(data, width);
    }
    if (this.search.value) this.graph!.search(this.search.value);
  }

  private build(data: Drawn, width: number): void {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    fill(this.chart);
    this.graph = flamegraph()
      .width(width)
      .cellHeight(20)
      .minFrameSize(2)
      .transitionDuration(0)
      .inverted(true)
      .sort(true)
      .selfValue(false)
      .title("")
      .setColorMapper((frame, original) => {
        if (frame.highlight) return color("accent");
        if (original === undefined || frame.data.name === "all") return color("raised");
        const part = hue(frame.data.name);
        return dark ? `hsl(${205 + part * 55} ${30 + part * 18}% ${34 + part * 10}%)`
          : `hsl(${200 + part * 60} ${52 + part * 24}% ${80 - part * 10}%)`;
      })
      .setLabelHandler(() => "")
      .onHover((frame) => this.describe(frame.data))
      .setDetailsHandler(() => undefined);
    select(this.chart).datum(data).call(this.graph);
  }

  private describe({ node, value }: Drawn): void {
    const whole = this.last?.bytes ?? 0;
    this.facts.textContent = `${node.n}${node.f ? ` at ${node.f}` : ""}: ${bytes(value)}` +
      ` (${share(value, whole)}) in about ${count(node.b)} blocks`;
  }
}
