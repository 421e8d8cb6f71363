// The processes that this one has started, and their pages.

import * as api from "./api";
import { h } from "./dom";
import { bytes } from "./format";
import type { Panel } from "./panel";
import { Table } from "./table";
import type { ProcessRow } from "./types";

export function processesPanel(): Panel {
  let most = 1, asked = 0;
  const table = new Table<ProcessRow>("Processes", [
    { title: "Process", text: true, key: (row) => row.process,
      show: (row) => h("span", {}, row.name, " ", h("span", { class: "muted" }, String(row.process))) },
    { title: "Resident", key: (row) => row.resident, show: (row) => bytes(row.resident),
      bar: (row) => row.resident / most },
    { title: "Started by", narrow: false, key: (row) => row.parent, show: (row) => String(row.parent) },
    { title: "Page", key: (row) => row.link,
      show: (row) => row.link ? h("a", { href: row.link, target: "_blank", rel: "noopener" }, "open") : "–" },
  ], 1, "The program has started no processes that run.");
  const note = h("p", { class: "note" });
  return {
    element: h("div", {}, note, table.element),
    update(_state, opened) {
      if (!opened && Date.now() - asked < 2000) return;
      asked = Date.now();
      void api.children().then(({ rows }) => {
        most = Math.max(1, ...rows.map((row) => row.resident));
        note.textContent = rows.length && !rows.some((row) => row.link)
          ? "With ./allod run --live --children, each of them serves a page." : "";
        table.update(rows);
      }).catch(() => undefined);
    },
  };
}
