// Requests to the server, with the link's token.

import type { Flame, ProcessRow, Span, StackRow, State } from "./types";

const token = new URLSearchParams(location.search).get("token") ?? "";

async function ask(path: string, method = "GET"): Promise<Response> {
  const response = await fetch(path, {
    method,
    headers: { Authorization: `Bearer ${token}` },
    cache: "no-store",
    signal: AbortSignal.timeout(30_000),
  });
  if (!response.ok) throw new Error((await response.text()).trim() || String(response.status));
  return response;
}

async function json<T>(path: string): Promise<T> {
  return (await ask(path)).json() as Promise<T>;
}

export const state = (since: number, thinned: number) =>
  json<State>(`api/state?since=${since}&thinned=${thinned}`);
export const children = () => json<{ rows: ProcessRow[] }>("api/children");
export const map = () => json<{ spans: Span[] }>("api/map");
export const flame = (of: string, from: number, to: number) =>
  json<Flame>(`api/flame?of=${of}&from=${Math.round(from)}&to=${Math.round(to)}`);
export const stacks = (of: "suspects" | "temporary" | "pins") =>
  json<{ rows: StackRow[]; free?: number }>(`api/stacks?of=${of}`);
export const act = (path: string) => ask(`api/${path}`, "POST");
export const purge = async () => (await (await act("purge")).json() as { purged: number }).purged;
export const pprof = async () => (await ask("debug/pprof/heap")).blob();
