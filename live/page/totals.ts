// The four main figures: in use, resident, held, waste.

import { byId, explain, fill, h } from "./dom";
import { bytes, count, share } from "./format";
import type { State } from "./types";
import { pace } from "./verdict";
import { roundedInMemory } from "./waterfall";

function card(name: string, value: string, tone: string, facts: string[], why: string): HTMLElement {
  return explain(h("div", { class: "card", tabindex: 0, style: `--tone:var(--${tone})` },
    h("span", { class: "card-name" }, name),
    h("span", { class: "card-value" }, value),
    ...facts.map((fact) => h("span", { class: "card-fact" }, fact))), why);
}

function ofNodes(state: State): string[] {
  return state.nodes.map(({ node, used, dirty }) => `${bytes(used + dirty)} on node ${node}`);
}

export function drawTotals(state: State): void {
  const { now, trends } = state;
  const live = state.residency.live - roundedInMemory(state);
  const waste = state.waste + roundedInMemory(state);
  fill(byId("totals"),
    card("In use", bytes(now.live), "live",
      [`${count(now.live_blocks)} blocks, at most ${bytes(now.peak_live)}`, pace(trends.live, now.live)],
      "Live: blocks that the program holds, rounded to size classes."),
    card("Resident", bytes(now.resident), "foreign",
      [`at most ${bytes(now.peak_resident)}`, pace(trends.resident, now.resident)],
      "What the system counts as memory of the process."),
    card("Held by Allod", bytes(now.held), "free",
      [
        `of ${bytes(now.reserved)} of addresses`,
        ...ofNodes(state),
        pace(trends.held, now.held),
      ],
      "Committed: blocks in use, free ones, what is kept for later, and Allod's records. Part of it may never have been touched."),
    card("Waste", bytes(waste), "dirty",
      [`${share(waste, waste + live)} of what is in memory`, `${bytes(now.purged)} given back so far`],
      "What is in memory and is not what the program asked for: rounding, free blocks, free spans, records. Pages that were given back do not count."));
}
