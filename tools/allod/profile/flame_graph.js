// @ts-check
// A flame graph: of the live page, and of the page that ./allod run --profile writes. It keeps its
// zoom and its search when the figures change.

/**
 * A function as it was called on one way. `s` is its short name if that is another than `n`, `w`
 * says that it only passes allocations on, `f` is file and line.
 * @typedef {{n: string, s?: string, w?: number, f?: string, v: number, b: number, c?: FlameNode[]}} FlameNode
 */

const ROW = 21;
const NARROWEST = 2; // pixels
const LEGIBLE = 24;

/** @param {{n: string, s?: string}} node */
export function shortName(node) {
  return node.s ?? node.n;
}

/**
 * Two standard deviations of an estimate of `bytes` in `blocks`, from samples that are `interval`
 * bytes apart on average.
 * @param {number} bytes @param {number} blocks @param {number} interval
 */
export function errorOf(bytes, blocks, interval) {
  if (interval <= 1 || bytes <= 0 || blocks <= 0) return 0;
  const size = bytes / blocks;
  const chance = -Math.expm1(-size / interval);
  return 2 * Math.sqrt(bytes * size / chance * (1 - chance));
}

/** @param {FlameNode} node @returns {boolean} */
function passesOn(node) {
  return !!node.w && (node.c ?? []).every(passesOn);
}

/**
 * The same without functions that only pass allocations on, where nothing else is called in them.
 * @param {FlameNode} node @returns {FlameNode}
 */
export function folded(node) {
  const children = (node.c ?? []).filter((child) => !passesOn(child)).map(folded);
  return { ...node, c: children };
}

/** The namespace of a name determines the colour, so related functions look alike. @param {string} name */
function hue(name) {
  let hash = 0;
  for (const character of name.split("::")[0] ?? "") hash = (hash * 31 + character.charCodeAt(0)) >>> 0;
  return hash % 1000 / 1000;
}

export class FlameGraph {
  /**
   * `onShow` is told of the node under the pointer or focus, and of the one in view otherwise;
   * `onFound` of the bytes of functions that match the search, or null without one.
   * @param {HTMLElement} element
   * @param {{onShow: (node: FlameNode, root: FlameNode) => void, onFound: (bytes: number | null) => void}} listeners
   */
  constructor(element, listeners) {
    this.element = element;
    this.listeners = listeners;
    /** @type {FlameNode | null} */ this.root = null;
    /** @type {string[]} */ this.path = [];
    this.wanted = "";
    this.width = 0;
    element.classList.add("flame-graph");
    element.addEventListener("pointerleave", () => this.tell());
    element.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => {
      if (Math.abs(element.clientWidth - this.width) >= 2) this.draw();
    }).observe(element);
  }

  /** @param {FlameNode} root */
  show(root) {
    this.root = root;
    this.draw();
  }

  /** @param {string} text */
  search(text) {
    this.wanted = text.toLowerCase();
    this.draw();
  }

  /** Shows a node over the whole width; without a path, all. @param {string[]} path */
  zoom(path) {
    this.path = path;
    this.draw();
  }

  /** The nodes from the root to the one in view; shorter where functions of the path are gone. */
  inView() {
    /** @type {FlameNode[]} */ const nodes = [];
    let node = this.root;
    for (let depth = 0; node; ++depth) {
      nodes.push(node);
      const wanted = this.path[depth];
      node = (node.c ?? []).find((child) => child.n === wanted) ?? null;
    }
    return nodes;
  }

  /** @param {FlameNode} node */
  matches(node) {
    return this.wanted !== "" && node.n.toLowerCase().includes(this.wanted);
  }

  /** Bytes of the outermost functions that match. @param {FlameNode} node @returns {number} */
  found(node) {
    return this.matches(node) ? node.v : (node.c ?? []).reduce((sum, child) => sum + this.found(child), 0);
  }

  tell() {
    const nodes = this.inView();
    const last = nodes[nodes.length - 1];
    if (last && this.root) this.listeners.onShow(last, this.root);
  }

  draw() {
    const { root, element } = this;
    this.width = element.clientWidth;
    if (!root || this.width === 0) return;
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.path;
    const above = this.inView();
    /** @type {HTMLElement[]} */ let frames = [];
    // Of those that have room for a name. Deep below them, one has to zoom in.
    let rows = 0;
    /** @param {FlameNode} node @param {number} left @param {number} width @param {number} row @param {string[]} path @param {boolean} isAbove */
    const add = (node, left, width, row, path, isAbove) => {
      frames.push(this.frame(node, left, width, row, path, isAbove));
      if (width > LEGIBLE) rows = Math.max(rows, row + 1);
    };
    above.slice(0, -1).forEach((node, depth) =>
      add(node, 0, this.width, depth, this.path.slice(0, depth), true));
    const top = above[above.length - 1];
    if (!top) return;
    const waiting = [{ node: top, left: 0, width: this.width, row: above.length - 1,
      path: this.path.slice(0, above.length - 1) }];
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const { node, left, width, row, path } = next;
      add(node, left, width, row, path, false);
      let at = left;
      for (const child of [...node.c ?? []].sort((a, b) => b.v - a.v)) {
        const wide = width * child.v / Math.max(1, node.v);
        if (wide < NARROWEST) break;
        waiting.push({ node: child, left: at, width: wide, row: row + 1, path: [...path, child.n] });
        at += wide;
      }
    }
    rows += 1;
    frames = frames.filter((frame) => parseFloat(frame.style.top) < rows * ROW);
    element.style.height = `${rows * ROW}px`;
    element.replaceChildren(...frames);
    if (focused !== undefined) {
      frames.find((frame) => frame.dataset.path === focused)?.focus({ preventScroll: true });
    }
    this.listeners.onFound(this.wanted ? this.found(root) : null);
    // The frame under the pointer tells of itself.
    if (!element.matches(":hover")) this.tell();
  }

  /** @param {FlameNode} node @param {number} left @param {number} width @param {number} row @param {string[]} path @param {boolean} isAbove */
  frame(node, left, width, row, path, isAbove) {
    const frame = document.createElement("button");
    const name = shortName(node);
    frame.className = `frame${row === 0 ? " root" : ""}${isAbove ? " above" : ""}` +
      `${this.matches(node) ? " match" : this.wanted ? " other" : ""}`;
    frame.style.cssText = `left:${left.toFixed(2)}px;width:${Math.max(1, width - 1).toFixed(2)}px;` +
      `top:${row * ROW}px;--hue:${hue(name).toFixed(3)}`;
    frame.dataset.path = path.join("\n");
    frame.tabIndex = row === 0 ? 0 : -1;
    if (width > LEGIBLE) frame.textContent = name;
    frame.setAttribute("aria-label", name);
    frame.addEventListener("click", () => this.zoom(path));
    const tell = () => { if (this.root) this.listeners.onShow(node, this.root); };
    frame.addEventListener("pointerenter", tell);
    frame.addEventListener("focus", tell);
    return frame;
  }

  /** Arrows move the focus to callers, callees and neighbours. @param {KeyboardEvent} event */
  onKey(event) {
    const here = /** @type {HTMLElement} */ (event.target);
    if (event.key === "Escape") this.zoom([]);
    const top = parseFloat(here.style.top), left = parseFloat(here.style.left);
    const frames = /** @type {HTMLElement[]} */ ([...this.element.children]);
    /** @param {number} row */
    const inRow = (row) => frames.filter((frame) => parseFloat(frame.style.top) === row)
      .sort((a, b) => parseFloat(a.style.left) - parseFloat(b.style.left));
    /** @type {HTMLElement | undefined} */ let next;
    if (event.key === "ArrowDown") {
      next = inRow(top + ROW).find((frame) => parseFloat(frame.style.left) >= left - 0.1);
    } else if (event.key === "ArrowUp") {
      next = inRow(top - ROW).filter((frame) => parseFloat(frame.style.left) <= left + 0.1).pop();
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const row = inRow(top);
      next = row[row.indexOf(here) + (event.key === "ArrowRight" ? 1 : -1)];
    } else if (event.key !== "Escape") {
      return;
    }
    next?.focus();
    event.preventDefault();
    event.stopPropagation();
  }
}
