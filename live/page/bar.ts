// The bar at the top: the program, and the actions.

import * as api from "./api";
import { byId, download, fill, h } from "./dom";
import { duration } from "./format";
import type { History } from "./history";
import type { State } from "./types";

interface View {
  paused: boolean;
  interval: number;
  lost: string;
  ended: string; // the time
  said: string;
}
interface Actions {
  again: () => void;
  mark: () => void;
  act: (path: string) => Promise<void>;
}

const INTERVALS: [number, string][] =
  [[250, "¼ s"], [1000, "1 s"], [2000, "2 s"], [5000, "5 s"], [30000, "30 s"]];
const RATES: [number, string][] = [
  [0, "off"], [8 << 20, "8 MiB"], [512 << 10, "512 KiB"], [64 << 10, "64 KiB"],
  [4 << 10, "4 KiB"], [1, "every one"],
];

let built: {
  status: HTMLElement; said: HTMLElement; pause: HTMLElement; rate: HTMLSelectElement; age: HTMLElement;
} | null = null;

function choice(label: string, hint: string, options: [number, string][], value: number,
                change: (value: number) => void): HTMLElement {
  const select = h("select", {
    title: hint,
    onchange: (event) => change(Number((event.target as HTMLSelectElement).value)),
  }, ...options.map(([number, text]) =>
    h("option", { value: number, selected: number === value }, text)));
  return h("label", {}, h("span", {}, label), select);
}

function save(state: () => State, history: History): HTMLElement {
  const name = (end: string) => `${state().process.name}-${state().process.id}.${end}`;
  const menu = h("select", {
    title: "Save what is shown",
    "aria-label": "Save",
    onchange: async (event) => {
      const select = event.target as HTMLSelectElement;
      const what = select.value;
      select.value = "";
      if (what === "json") {
        download(name("json"), "application/json", JSON.stringify(state(), null, 1));
      } else if (what === "csv") {
        download(name("csv"), "text/csv", history.csv());
      } else if (what === "pprof") {
        download(name("pb.gz"), "application/octet-stream", await api.pprof());
      }
    },
  },
  h("option", { value: "" }, "Save …"),
  h("option", { value: "json" }, "Figures, JSON"),
  h("option", { value: "csv" }, "Timeline, CSV"),
  h("option", { value: "pprof" }, "Heap profile, pprof"));
  return h("label", {}, menu);
}

// Asks for the label of a mark, within the page.
export function askForMark(done: (label: string) => void): void {
  if (document.getElementById("mark")) return;
  const label = h("input", { name: "label", value: "mark", "aria-label": "Label of the mark", maxlength: 60 }) as HTMLInputElement;
  const dialog = h("dialog", { id: "mark", "aria-label": "Mark" },
    h("form", { method: "dialog" },
      h("label", {}, "What happens now?", label),
      h("button", { value: "set" }, "Set mark"),
      h("button", { value: "", formnovalidate: true }, "Cancel"))) as HTMLDialogElement;
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "set") done(label.value);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  label.select();
}

export function drawBar(state: State, view: View, history: History, actions: Actions): void {
  current = state;
  if (!built) {
    const status = h("span", { class: "status", role: "status" });
    const said = h("span", { class: "said", role: "status" });
    const age = h("span", { class: "age" });
    const pause = h("button", {
      title: "Stop asking; the program goes on (P)",
      onclick: () => { view.paused = !view.paused; actions.again(); },
    });
    const rate = choice("Sampling", "Mean bytes between two samples", RATES,
      state.profile.interval, (value) => void actions.act(`sampling?interval=${value}`));
    fill(byId("bar"),
      h("div", { class: "who" },
        h("span", { class: "word" }, "Allod"),
        h("strong", { title: state.process.command }, state.process.name),
        h("span", { class: "muted" }, `process ${state.process.id}`), age, status, said),
      h("div", { class: "actions", role: "toolbar", "aria-label": "Actions" },
        pause,
        choice("Every", "How often the page asks", INTERVALS, view.interval,
          (value) => { view.interval = value; actions.again(); }),
        rate,
        h("button", { title: "Set a mark on the timeline (M)", onclick: actions.mark }, "Mark"),
        h("button", {
          title: "Give all free memory back to the system now",
          onclick: () => void actions.act("purge"),
        }, "Purge"),
        h("button", {
          title: "Peaks and totals begin anew",
          onclick: () => void actions.act("reset"),
        }, "Reset"),
        save(() => current!, history)));
    built = { status, said, pause, rate: rate.querySelector("select")!, age };
  }
  built.pause.textContent = view.paused ? "Go on" : "Pause";
  built.pause.setAttribute("aria-pressed", String(view.paused));
  built.age.textContent = `served for ${duration(state.process.now_ms - state.process.started_ms)}`;
  if (built.said.textContent !== view.said) built.said.textContent = view.said;
  const [tone, text] = view.ended ? ["ended", `ended at ${view.ended}, last figures kept`]
    : view.lost ? ["lost", `no answer: ${view.lost}`]
    : view.paused ? ["paused", "paused"] : ["live", "live"];
  built.status.className = `status ${tone}`;
  if (built.status.textContent !== text) built.status.textContent = text;
  const { rate } = built;
  rate.disabled = !state.profile.available;
  if (document.activeElement !== rate) {
    const known = RATES.some(([value]) => value === state.profile.interval);
    if (!known && !rate.querySelector("[data-other]")) {
      rate.append(h("option", { "data-other": true, value: state.profile.interval },
        `${state.profile.interval} B`));
    }
    rate.value = String(state.profile.interval);
  }
}

let current: State | null = null;
