// A table, sortable by any column, with optional bars.

import { h } from "./dom";

export interface Column<Row> {
  title: string;
  hint?: string;
  // `show` is displayed; `key` is the sort key, where strings sort as text.
  show: (row: Row) => string | Node;
  key: (row: Row) => number | string;
  text?: boolean; // left-aligned
  bar?: (row: Row) => number; // 0 to 1
  tone?: string;
  narrow?: boolean; // stays on small screens
}

const MOST_ROWS = 30;

export class Table<Row> {
  readonly element = h("div", { class: "table-frame" });
  private sorted: number;
  private down = true;
  private rows: Row[] = [];
  private all = false;

  constructor(
    private readonly label: string,
    private readonly columns: Column<Row>[],
    sortedBy: number,
    private readonly empty: string,
    private readonly more?: (row: Row) => Node | null,
    private readonly identity?: (row: Row) => string,
  ) {
    this.sorted = sortedBy;
  }

  private readonly opened = new Set<string>();

  update(rows: Row[]): void {
    this.rows = rows;
    this.draw();
  }

  private draw(): void {
    const focused = document.activeElement?.getAttribute("data-focus");
    if (this.rows.length === 0) {
      this.element.replaceChildren(h("p", { class: "empty" }, this.empty));
      return;
    }
    const column = this.columns[this.sorted]!;
    const sign = this.down ? -1 : 1;
    const ordered = [...this.rows].sort((a, b) => {
      const left = column.key(a), right = column.key(b);
      if (typeof left === "string") return -sign * left.localeCompare(String(right), "en");
      return sign * (left - Number(right));
    });
    const shown = this.all ? ordered : ordered.slice(0, MOST_ROWS);
    const body = h("tbody");
    for (const row of shown) body.append(...this.line(row));
    this.element.replaceChildren(
      h("table", { "aria-label": this.label }, h("thead", {}, this.head()), body),
      ordered.length > shown.length
        ? h("button", { class: "quiet", onclick: () => { this.all = true; this.draw(); } },
            `Show all ${ordered.length}`)
        : "",
    );
    if (focused) this.element.querySelector<HTMLElement>(`[data-focus="${focused}"]`)?.focus();
  }

  private head(): HTMLElement {
    return h("tr", {}, ...this.columns.map((column, index) => {
      const active = index === this.sorted;
      return h("th",
        {
          scope: "col",
          class: this.style(column),
          "aria-sort": active ? (this.down ? "descending" : "ascending") : undefined,
        },
        h("button",
          {
            "data-focus": `${this.label}-${index}`,
            title: column.hint,
            onclick: () => {
              this.down = active ? !this.down : true;
              this.sorted = index;
              this.draw();
            },
          },
          column.title, active ? (this.down ? " ↓" : " ↑") : ""));
    }));
  }

  private style(column: Column<Row>): string {
    return `${column.text ? "text" : "number"}${column.narrow === false ? " wide-only" : ""}`;
  }

  private line(row: Row): HTMLElement[] {
    const cells = this.columns.map((column) => {
      const cell = h("td", { class: this.style(column) }, column.show(row));
      if (column.bar) {
        const part = Math.max(0, Math.min(1, column.bar(row)));
        cell.classList.add("bar");
        cell.style.setProperty("--part", `${(100 * part).toFixed(2)}%`);
        cell.style.setProperty("--tone", `var(--${column.tone ?? "live"}-soft)`);
      }
      return cell;
    });
    const line = h("tr", {}, ...cells);
    if (!this.more || !this.identity) return [line];
    const id = this.identity(row);
    const open = this.opened.has(id);
    const turn = () => {
      if (!this.opened.delete(id)) this.opened.add(id);
      this.draw();
    };
    line.classList.add("opens");
    line.addEventListener("click", () => {
      // Not at the end of a selection of text.
      if (getSelection()?.isCollapsed !== false) turn();
    });
    const toggle = h("button",
      {
        class: "opener",
        "aria-expanded": String(open),
        "aria-label": "Details",
        "data-focus": `open-${id}`,
        onclick: (event) => { event.stopPropagation(); turn(); },
      },
      open ? "▾" : "▸");
    cells[0]!.prepend(toggle);
    if (!open) return [line];
    const details = this.more(row);
    return [line, h("tr", { class: "more" }, h("td", { colspan: this.columns.length }, details))];
  }
}
