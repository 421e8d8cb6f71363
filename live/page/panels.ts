// The panels below the overview. Only the open one fetches data and draws.

import { byId, fill, h } from "./dom";
import { FlamePanel } from "./flame";
import { MapPanel } from "./map";
import type { Panel } from "./panel";
import { processesPanel } from "./processes";
import { StacksPanel } from "./stacks";
import { heapsPanel, sizesPanel, threadsPanel } from "./tables";
import type { State } from "./types";

function slug(title: string): string {
  return title.toLowerCase().replaceAll(" ", "-");
}

export class Panels {
  private state: State | null = null;
  private current = 0;
  private readonly flame: FlamePanel;
  private readonly list: [string, Panel][];
  private readonly tabs: HTMLElement[];
  private readonly body = h("div", { id: "panel", role: "tabpanel", tabindex: -1 });

  constructor(range: () => [number, number] | null) {
    this.flame = new FlamePanel(range);
    this.list = [
      ["Flame graph", this.flame],
      ["Leak suspects", new StacksPanel("suspects")],
      ["Sizes", sizesPanel()],
      ["Threads", threadsPanel()],
      ["Fragmentation", new MapPanel()],
      ["Heaps", heapsPanel()],
      ["Temporary", new StacksPanel("temporary")],
      ["Processes", processesPanel()],
    ];
    this.tabs = this.list.map(([name], index) => h("button", {
      role: "tab",
      id: `tab-${index}`,
      "aria-controls": "panel",
      title: `${name} (${index + 1})`,
      onclick: () => this.openNumber(index),
    }, name));
    const bar = h("div", { role: "tablist", "aria-label": "Details" }, ...this.tabs);
    bar.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      this.openNumber((this.current + step + this.list.length) % this.list.length);
      this.tabs[this.current]!.focus();
      event.preventDefault();
    });
    fill(byId("details"), bar, this.body);
    const asked = this.list.findIndex(([name]) => slug(name) === location.hash.slice(1));
    this.openNumber(Math.max(0, asked));
  }

  openNumber(index: number): void {
    const chosen = this.list[index];
    if (!chosen) return;
    this.current = index;
    this.tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === index));
      tab.tabIndex = at === index ? 0 : -1;
    });
    this.body.setAttribute("aria-labelledby", `tab-${index}`);
    fill(this.body, chosen[1].element);
    history.replaceState(null, "", `#${slug(chosen[0])}`);
    this.refresh();
  }

  // A panel by its name in the address, or another part of the page by its id.
  openNamed(name: string): void {
    const index = this.list.findIndex(([title]) => slug(title) === name);
    this.openNumber(index);
    (this.tabs[index] ?? byId(name)).scrollIntoView({ block: "start", behavior: "smooth" });
  }

  open(what: "growth"): void {
    this.flame.choose(what);
    this.openNumber(0);
    this.tabs[0]!.scrollIntoView({ block: "start", behavior: "smooth" });
  }

  update(state: State): void {
    this.state = state;
    this.list[this.current]![1].update(state, false);
  }

  refresh(): void {
    if (this.state) this.list[this.current]![1].update(this.state, true);
  }
}
