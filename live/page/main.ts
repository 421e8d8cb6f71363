// Polls the server, and updates the parts of the page.

import * as api from "./api";
import { askForMark, drawBar } from "./bar";
import { byId, fill, h } from "./dom";
import { bytes, clock } from "./format";
import { History } from "./history";
import { Panels } from "./panels";
import { Timeline } from "./timeline";
import { drawTotals } from "./totals";
import type { State } from "./types";
import { judge, verdictNodes } from "./verdict";
import { drawWaterfall } from "./waterfall";
import "./page.css";

const history = new History();
const view = { paused: false, interval: 1000, lost: "", ended: "", said: "" };
// After the end, in case it was none.
const ENDED_MS = 5000;
let state: State | null = null;
let timer = 0;

const panels = new Panels(() => timeline.range);
const timeline = new Timeline(history, () => panels.refresh(), () => panels.open("growth"));

function draw(): void {
  if (!state) return;
  drawBar(state, view, history, { again, mark, act });
  const verdict = judge(state);
  const line = byId("verdict");
  line.className = verdict.tone;
  // Unchanged text is not replaced, since screen readers announce changes.
  const nodes = verdictNodes(verdict, (panel) => panels.openNamed(panel));
  if (line.textContent !== nodes.map((node) => node.textContent).join("")) fill(line, ...nodes);
  drawTotals(state);
  drawWaterfall(state);
  timeline.draw();
  panels.update(state);
  document.title = `${state.process.name}: Allod`;
}

async function poll(): Promise<void> {
  clearTimeout(timer);
  try {
    const before = state?.process.started_ms;
    state = await api.state(history.newest, history.thinned);
    if (before !== undefined && before !== state.process.started_ms) {
      // The process has executed another program, which serves the page now.
      history.forget();
      state = await api.state(0, 0);
    }
    history.add(state.history);
    view.lost = view.ended = "";
  } catch (error) {
    note(error);
  }
  if (state) {
    draw();
  } else {
    fill(byId("verdict"), view.ended ? "The program has ended." : `The program does not answer: ${view.lost}`);
  }
  const wait = view.ended ? ENDED_MS : view.interval;
  if (!view.paused && !document.hidden) timer = window.setTimeout(poll, wait);
}

// Nobody listens at the port of a program that has ended, which fetch reports as a TypeError.
function note(error: unknown): void {
  if (error instanceof TypeError) {
    view.lost = "";
    view.ended ||= clock(Date.now()).slice(0, 5);
  } else {
    view.lost = error instanceof Error ? error.message : String(error);
  }
}

function again(): void {
  clearTimeout(timer);
  if (view.paused) {
    draw();
  } else {
    void poll();
  }
}

async function act(path: string): Promise<void> {
  try {
    if (path === "purge") {
      say(`Purge gave back ${bytes(await api.purge())}.`);
    } else {
      await api.act(path);
    }
  } catch (error) {
    note(error);
  }
  panels.refresh();
  await poll();
}

let silence = 0;
// What an action did, for a while.
function say(text: string): void {
  clearTimeout(silence);
  view.said = text;
  silence = window.setTimeout(() => { view.said = ""; draw(); }, 12_000);
}

function mark(): void {
  askForMark((label) => void act(`mark?label=${encodeURIComponent(label)}`));
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) again();
});
document.addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select")) return;
  const keys: Record<string, () => void> = {
    p: () => { view.paused = !view.paused; again(); },
    m: mark,
    "+": () => timeline.step(0, 0.5),
    "-": () => timeline.step(0, 2),
    "0": () => timeline.zoom(null),
  };
  if (!target.closest("[role=tablist]")) {
    keys.ArrowLeft = () => timeline.step(-1, 1);
    keys.ArrowRight = () => timeline.step(1, 1);
  }
  const number = Number(event.key);
  if (number >= 1) {
    panels.openNumber(number - 1);
  } else if (keys[event.key]) {
    keys[event.key]!();
  } else {
    return;
  }
  event.preventDefault();
});

fill(byId("foot"),
  "Keys: P pause, M mark, + − 0 zoom, arrows move, 1 to 8 open a panel. The same figures for machines: ",
  h("code", {}, "/api/state"), ", ", h("code", {}, "/metrics"), ", ", h("code", {}, "/debug/pprof/heap"),
  ".");
void poll();
