// The verdict: the state of memory, and all that matters, in words.

import { h } from "./dom";
import { bytes, duration, share } from "./format";
import type { Finding, State, Trend } from "./types";

export interface Verdict {
  tone: "calm" | "watch" | "alarm";
  start: string;
  findings: { text: string; advice: string; panel: string }[];
}

// The half of the interval that holds the slope with 99 % certainty.
function error(trend: Trend): string {
  return `± ${bytes((trend.high - trend.low) / 2)}`;
}

// A card's word for a trend; empty while too little is known.
export function pace(trend: Trend): string {
  if (trend.span_ms === 0) return "";
  if (!trend.sure) return "steady";
  return `${trend.rate > 0 ? "+" : ""}${bytes(trend.rate)} a minute (${error(trend)})`;
}

function grows(trend: Trend): string {
  return `grows by ${bytes(trend.rate)} (${error(trend)}) a minute, over the last ${duration(trend.span_ms)}.`;
}

function words(finding: Finding, state: State): [string, string] {
  const part = `${bytes(finding.bytes)}, ${share(finding.bytes, state.now.resident)},`;
  switch (finding.what) {
    case "growth":
      return [`In use ${grows(state.trends.live)}`, state.profile.interval === 0
        ? "Turn sampling on to see who allocates it." : "See who."];
    case "growth_elsewhere":
      return [`Resident memory ${grows(state.trends.resident)} Blocks in use do not.`, "See where."];
    case "not_ours":
      return [`${part} is not Allod's: code, stacks, mappings of the program itself.`,
        "The heap is not the cause."];
    case "free_in_slabs":
      return [`${part} lies free between blocks in use.`, "See who pins it."];
    case "dirty":
      return [`${part} is free and waits to be given back.`,
        "Purge gives it back at once; otherwise it goes after the purge delay."];
    case "cached":
      return [`${part} is kept at hand by threads.`, "It shrinks when threads fall idle."];
  }
}

export function judge(state: State): Verdict {
  const { now, trends } = state;
  const findings = state.findings.map((finding) => {
    const [text, advice] = words(finding, state);
    return { text, advice, panel: finding.panel };
  });
  const { live } = trends;
  const rest = state.findings.some(({ what }) => what.startsWith("growth")) || live.span_ms < 15_000
    ? "" : live.sure ? ` In use ${live.rate > 0 ? "grows" : "shrinks"} by ${bytes(Math.abs(live.rate))} a minute.`
      : ` Steady over the last ${duration(live.span_ms)}.`;
  return {
    tone: state.findings.some(({ alarm }) => alarm) ? "alarm" : findings.length ? "watch" : "calm",
    start: `${bytes(now.resident)} resident, ${bytes(now.live)} of blocks in use.${rest}`,
    findings,
  };
}

// Each finding leads to what shows it.
export function verdictNodes(verdict: Verdict, open: (panel: string) => void): Node[] {
  return [
    h("strong", {}, verdict.start),
    ...verdict.findings.flatMap(({ text, advice, panel }) => [
      document.createTextNode(" "),
      h("a", {
        href: `#${panel}`,
        onclick: (event) => { event.preventDefault(); open(panel); },
      }, text),
      document.createTextNode(` ${advice}`),
    ]),
  ];
}
