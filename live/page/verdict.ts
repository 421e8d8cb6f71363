// The verdict: the state of memory, and all that matters, in words.

import { h } from "./dom";
import { bytes, duration, share } from "./format";
import type { Finding, Foreign, State, Trend } from "./types";

export interface Verdict {
  tone: "calm" | "watch" | "alarm";
  start: string;
  findings: { text: string; advice: string; panel: string }[];
}

// The half of the interval that holds the slope with 99 % certainty.
function error(trend: Trend): string {
  return `±\u00a0${bytes((trend.high - trend.low) / 2).replace(" ", "\u00a0")}`;
}

// Whether what may be hidden by noise matters little: an hour of it adds 4 MiB, or 5 %, at most.
function isSteady(trend: Trend, whole: number): boolean {
  const most = 60 * Math.max(Math.abs(trend.low), Math.abs(trend.high));
  return !trend.sure && trend.span_ms > 0 && most <= Math.max(4 << 20, whole / 20);
}

// A card's word for a trend; empty while too little is known.
export function pace(trend: Trend, whole: number): string {
  if (isSteady(trend, whole)) return "steady";
  if (!trend.sure) return "";
  return `${trend.rate > 0 ? "+" : ""}${bytes(trend.rate)} a minute (${error(trend)})`;
}

function grows(trend: Trend): string {
  return `grows by ${bytes(trend.rate)} (${error(trend)}) a minute, over the last ${duration(trend.span_ms)}.`;
}

// The largest parts, those that make up nearly all of it.
function foreignParts(foreign: Foreign): string {
  const names: [number, string][] = [[foreign.code, "code"], [foreign.stacks, "stacks"],
    [foreign.files, "files"], [foreign.other, "other mappings"]];
  const sum = names.reduce((all, [size]) => all + size, 0);
  return names.filter(([size]) => size >= sum / 20).sort(([one], [other]) => other - one)
    .map(([size, name]) => `${bytes(size)} of ${name}`).join(", ") || "code, stacks, mappings";
}

// A pool of the program is told where what it may hold is most of what is not Allod's.
export function likelyPool(foreign: Foreign): boolean {
  return foreign.pool !== "" && foreign.other >= 4 << 20
    && foreign.other >= (foreign.code + foreign.stacks + foreign.files) / 2;
}

function foreignAdvice({ foreign }: State): string {
  return likelyPool(foreign)
    ? `Likely ${foreign.pool}: ${foreign.remedy}.` : "The heap is not the cause.";
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
      return [`${part} is not Allod's: ${foreignParts(state.foreign)}.`, foreignAdvice(state)];
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
      : isSteady(live, now.live) ? ` Steady over the last ${duration(live.span_ms)}.` : "";
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
