// The verdict: one sentence on the state and trend of memory.

import { bytes, duration, share } from "./format";
import type { History } from "./history";
import type { State } from "./types";

export interface Verdict {
  tone: "calm" | "watch" | "alarm";
  text: string;
  advice: string;
}

// Bytes per minute, by least squares over the newest points, and the time span of these.
export function trend(history: History, field: string, window_ms: number): [number, number] {
  const times = history.column("at_ms"), values = history.column(field);
  const last = times.length - 1;
  if (last < 4) return [0, 0];
  let first = last;
  while (first > 0 && times[last]! - times[first]! < window_ms) --first;
  const span = times[last]! - times[first]!;
  const n = last - first + 1;
  let mean_t = 0, mean_v = 0;
  for (let i = first; i <= last; ++i) {
    mean_t += times[i]! / n;
    mean_v += values[i]! / n;
  }
  let above = 0, below = 0;
  for (let i = first; i <= last; ++i) {
    above += (times[i]! - mean_t) * (values[i]! - mean_v);
    below += (times[i]! - mean_t) ** 2;
  }
  return below === 0 ? [0, span] : [above / below * 60_000, span];
}

export function judge(state: State, history: History): Verdict {
  const { now, residency } = state;
  const start = `${bytes(now.resident)} resident, ${bytes(now.live)} of blocks in use.`;
  const [rate, span] = trend(history, "live", 300_000);
  const grows = span > 15_000 && rate > Math.max(512 * 1024, now.live / 100);
  if (grows) {
    const double = now.live / rate * 60_000;
    return {
      tone: double < 3_600_000 ? "alarm" : "watch",
      text: `${start} In use grows by ${bytes(rate)} a minute, over the last ${duration(span)}.`,
      advice: state.profile.interval === 0
        ? "Turn sampling on to see who allocates it."
        : "See who: Leak suspects, or drag over the timeline and look at the growth.",
    };
  }
  const parts: [string, number, string][] = [
    ["is not Allod's: code, stacks, mappings of the program itself", residency.not_ours,
      "The heap is not the cause."],
    ["lies free between blocks in use", residency.free_in_slabs,
      "See Fragmentation for who pins it."],
    ["is free and waits to be given back", residency.dirty,
      "Purge gives it back at once; otherwise it goes after the purge delay."],
    ["is kept at hand by threads", residency.cached, "It shrinks when threads fall idle."],
  ];
  const [what, most, advice] = parts.sort((a, b) => b[1] - a[1])[0]!;
  if (now.resident > 32 * 1024 ** 2 && most > now.resident * 0.3 && most > now.live / 4) {
    return {
      tone: "watch",
      text: `${start} ${bytes(most)}, ${share(most, now.resident)}, ${what}.`,
      advice,
    };
  }
  const steady = span > 15_000 ? ` Steady over the last ${duration(span)}.` : "";
  return { tone: "calm", text: start + steady, advice: "" };
}
