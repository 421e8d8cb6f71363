// @ts-check
// The page that ./allod run --profile writes: the live page's flame graph, of a file.
import { FlameGraph, errorOf, folded, shortName } from "./flame_graph.js";
import { showTimeline } from "./timeline.js";

/**
 * Nodes and rows name functions by their index: a node is [name, bytes, blocks, children], a row
 * [name, own bytes, bytes with callees, blocks].
 * @typedef {[number, number, number, Packed[]]} Packed
 * @typedef {[number, number, number, number]} Row
 * @typedef {{n: string, s?: string, w?: number}} Name
 * @typedef {{words: string, bytes: number, blocks: number, root: Packed, rows: Row[]}} Kind
 * @typedef {{title: string, note: string, interval: number, names: Name[], first: number, kinds: Kind[],
 *            timeline?: import("./timeline.js").Timeline}} Data
 */

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
/** @type {Data} */
const data = JSON.parse(byId("data").textContent ?? "");
const view = { kind: data.first, folds: true, sorted: 1, down: true };

/** @param {number} value */
function bytes(value) {
  let unit = 0;
  for (; value >= 999.5 && unit < 4; ++unit) value /= 1024;
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}
/** @param {number} part @param {number} whole */
const share = (part, whole) => `${(100 * part / Math.max(1, whole)).toFixed(1)} %`;
/** @param {number} value */
const count = (value) => Math.round(value).toLocaleString("en");
/** @param {number} size @param {number} blocks */
function estimate(size, blocks) {
  const error = Math.min(size, errorOf(size, blocks, data.interval));
  return error >= 1 ? `${bytes(size)} ± ${bytes(error)}` : bytes(size);
}

/** @param {Packed} packed @returns {import("./flame_graph.js").FlameNode} */
function unpacked([name, v, b, children]) {
  const { n, s, w } = data.names[name] ?? { n: "?" };
  return { n, ...(s ? { s } : {}), ...(w ? { w } : {}), v, b, c: children.map(unpacked) };
}

const kind = () => /** @type {Kind} */ (data.kinds[view.kind]);

const graph = new FlameGraph(byId("flame"), {
  onShow: (node) => {
    const name = document.createElement("strong");
    name.textContent = shortName(node);
    name.title = node.n;
    byId("facts").replaceChildren(name,
      `: ${estimate(node.v, node.b)} (${share(node.v, kind().bytes)}) in about ${count(node.b)} blocks`);
  },
  onFound: (size) => {
    byId("found").textContent = size === null ? "" : `${bytes(size)} (${share(size, kind().bytes)})`;
  },
});

function draw() {
  [...byId("kinds").children].forEach((button, index) =>
    button.setAttribute("aria-pressed", String(index === view.kind)));
  byId("wrappers").setAttribute("aria-pressed", String(!view.folds));
  const root = unpacked(kind().root);
  graph.show(view.folds ? folded(root) : root);
  drawFunctions();
}

/** @type {[string, string, string][]} */
const COLUMNS = [
  ["Function", "", ""],
  ["Itself", "Bytes that it allocated itself, or through functions that only pass allocations on", ""],
  ["With callees", "Bytes that it and what it called allocated", ""],
  ["Blocks", "", "wide"],
];

function drawFunctions() {
  const { rows } = kind();
  const { sorted, down } = view;
  /** @param {Row} row */
  const nameOf = (row) => shortName(data.names[row[0]] ?? { n: "?" });
  const ordered = [...rows].sort((a, b) => (down ? -1 : 1) * (sorted === 0
    ? nameOf(b).localeCompare(nameOf(a), "en") : Number(a[sorted]) - Number(b[sorted])));
  const head = document.createElement("tr");
  COLUMNS.forEach(([title, hint, style], index) => {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    cell.className = style;
    if (index === sorted) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    button.textContent = title + (index === sorted ? (down ? " ↓" : " ↑") : "");
    button.title = hint;
    button.addEventListener("click", () => {
      view.down = index === sorted ? !down : true;
      view.sorted = index;
      drawFunctions();
    });
    cell.append(button);
    head.append(cell);
  });
  const most = Math.max(1, ...rows.map((row) => row[1]));
  const body = ordered.map((row) => {
    const line = document.createElement("tr");
    const texts = [nameOf(row), bytes(row[1]), bytes(row[2]), count(row[3])];
    texts.forEach((text, index) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      cell.className = COLUMNS[index]?.[2] ?? "";
      if (index === 0) cell.title = data.names[row[0]]?.n ?? "";
      if (index === 1) {
        cell.classList.add("bar");
        cell.style.setProperty("--part", `${(100 * row[1] / most).toFixed(1)}%`);
      }
      line.append(cell);
    });
    return line;
  });
  byId("functions").replaceChildren(head, ...body);
}

document.title = byId("title").textContent = data.title;
byId("note").textContent = data.note;
data.kinds.forEach(({ words, bytes: size }, index) => {
  const button = document.createElement("button");
  button.textContent = `${words}: ${bytes(size)}`;
  button.addEventListener("click", () => { view.kind = index; draw(); });
  byId("kinds").append(button);
});
byId("wrappers").addEventListener("click", () => { view.folds = !view.folds; draw(); });
byId("all").addEventListener("click", () => graph.zoom([]));
const search = /** @type {HTMLInputElement} */ (byId("search"));
if (data.timeline) {
  byId("time").hidden = false;
  showTimeline(byId("timeline"), data.timeline, bytes);
}
search.addEventListener("input", () => graph.search(search.value));
draw();
