// Memory over time: drag to zoom, double-click to reset, marks for events.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { byId, color, fill, h } from "./dom";
import { bytes, clock, duration, signed } from "./format";
import type { History } from "./history";

const LINES: [field: string, label: string, tone: string][] = [
  ["resident", "resident", "foreign"],
  ["held", "held by Allod", "free"],
  ["live", "in use", "live"],
];

export class Timeline {
  // The selected range in milliseconds; null: all.
  range: [number, number] | null = null;
  private plot: uPlot | null = null;
  private readonly box = h("div", { class: "plot" });
  private readonly facts = h("p", { class: "note", "aria-live": "off" });

  constructor(private readonly history: History, onPick: () => void, onGrowth: () => void) {
    this.pick = onPick;
    const growth = h("button", { class: "quiet", onclick: onGrowth }, "Who grew?");
    const all = h("button", { class: "quiet", onclick: () => this.zoom(null) }, "See all");
    fill(byId("timeline"),
      h("div", { class: "title-line" },
        h("h2", { id: "timeline-title" }, "Over time"),
        h("span", { class: "keys" }, ...LINES.map(([, label, tone]) =>
          h("span", { class: "key" }, h("i", { style: `background:var(--${tone})` }), label))),
        growth, all),
      this.box, this.facts);
    new ResizeObserver(() => this.resize()).observe(this.box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.build());
  }

  private readonly pick: () => void;

  draw(): void {
    if (!this.plot) this.build();
    this.plot!.setData(this.data(), this.range === null);
    if (this.range) this.plot!.setScale("x", { min: this.range[0] / 1000, max: this.range[1] / 1000 });
    this.tell();
  }

  zoom(range: [number, number] | null): void {
    this.range = range;
    this.draw();
    this.pick();
  }

  // Keyboard control: -1 and 1 move, 0.5 and 2 scale.
  step(move: number, scale: number): void {
    const times = this.history.column("at_ms");
    if (times.length < 2) return;
    const [from, to] = this.range ?? [times[0]!, times[times.length - 1]!];
    const middle = (from + to) / 2 + move * (to - from) / 4;
    const half = (to - from) / 2 * scale;
    if (half > (times[times.length - 1]! - times[0]!) / 2) return this.zoom(null);
    this.zoom([middle - half, middle + half]);
  }

  private data(): uPlot.AlignedData {
    return [
      this.history.column("at_ms").map((ms) => ms / 1000),
      ...LINES.map(([field]) => this.history.column(field)),
    ] as uPlot.AlignedData;
  }

  private size(): { width: number; height: number } {
    return { width: Math.max(200, this.box.clientWidth), height: innerWidth < 700 ? 200 : 232 };
  }

  private resize(): void {
    this.plot?.setSize(this.size());
  }

  private build(): void {
    this.plot?.destroy();
    const grid = { stroke: color("line"), width: 1 };
    const axis = { stroke: color("muted"), grid, ticks: { show: false }, font: "11px system-ui" };
    this.plot = new uPlot({
      ...this.size(),
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false, dist: 6, setScale: false },
        points: { size: 7 },
      },
      scales: { y: { range: (_plot, _min, max) => [0, Math.max(1024, max * 1.06)] } },
      axes: [
        { ...axis, size: 28, values: "{HH}:{mm}:{ss}", space: 80 },
        { ...axis, size: 68, values: (_plot, splits) => splits.map((at) => bytes(at)),
          incrs: Array.from({ length: 50 }, (_, power) => 2 ** power) },
      ],
      series: [
        {},
        ...LINES.map(([, label, tone], index) => ({
          label,
          stroke: color(tone),
          width: 2,
          points: { show: false },
          fill: index === 2 ? color("live-soft") : undefined,
        })),
      ],
      hooks: {
        setSelect: [(plot) => {
          const { left, width } = plot.select;
          if (width < 6) return;
          const range: [number, number] =
            [plot.posToVal(left, "x") * 1000, plot.posToVal(left + width, "x") * 1000];
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          this.zoom(range);
        }],
        setCursor: [() => this.tell()],
        draw: [(plot) => this.drawMarks(plot)],
      },
    }, this.data(), this.box);
    this.plot.over.addEventListener("dblclick", () => this.zoom(null));
  }

  private drawMarks(plot: uPlot): void {
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("accent");
    ctx.font = `${11 * devicePixelRatio}px system-ui`;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const mark of this.history.marks) {
      const x = plot.valToPos(mark.at_ms / 1000, "x", true);
      if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, plot.bbox.top);
      ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
      ctx.stroke();
      ctx.fillText(mark.label, x + 4 * devicePixelRatio, plot.bbox.top + 11 * devicePixelRatio);
    }
    ctx.restore();
  }

  private tell(): void {
    const index = this.plot?.cursor.idx;
    const at = index === null || index === undefined ? -1 : index;
    const times = this.history.column("at_ms");
    if (at >= 0 && at < times.length) {
      const values = LINES.map(([field, label]) => `${label} ${bytes(this.history.column(field)[at]!)}`);
      this.facts.textContent = `${clock(times[at]!)}: ${values.join(", ")}`;
    } else if (this.range) {
      const inside = (ms: number) => times.findIndex((time) => time >= ms);
      const from = Math.max(0, inside(this.range[0]));
      const to = inside(this.range[1]) < 0 ? times.length - 1 : inside(this.range[1]);
      const live = this.history.column("live"), resident = this.history.column("resident");
      this.facts.textContent = `${clock(times[from]!)} to ${clock(times[to]!)}, ` +
        `${duration(times[to]! - times[from]!)}: in use ${signed(live[to]! - live[from]!)}, ` +
        `resident ${signed(resident[to]! - resident[from]!)}`;
    } else {
      this.facts.textContent = "Drag to look closer; with the keyboard, + − and the arrows. M sets a mark.";
    }
  }
}
