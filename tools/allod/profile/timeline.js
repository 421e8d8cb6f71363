// @ts-check
// The timeline of a profile's page: the bytes in use, and those allocated each second.

/**
 * Of each period: the most bytes in use within it, and the bytes ever allocated at its end.
 * @typedef {{period_ms: number, live: number[], total: number[]}} Timeline
 */

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000;
const HEIGHT = 90;

/** @param {string} name @param {Record<string, string | number>} attributes @param {...Element} children */
function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/** @param {number} ms */
function time(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = seconds / 60;
  return minutes < 120 ? `${minutes.toFixed(0)} min` : `${(minutes / 60).toFixed(1)} h`;
}

/**
 * One chart. Each period is a step.
 * @param {number[]} values @param {number} period @param {string} title @param {(value: number) => string} told
 */
function chart(values, period, title, told) {
  const most = Math.max(1, ...values);
  const step = WIDTH / values.length;
  const path = values.map((value, index) =>
    `V${(HEIGHT * (1 - value / most)).toFixed(1)}H${((index + 1) * step).toFixed(1)}`).join("");
  const pointer = svg("line", { y1: 0, y2: HEIGHT, class: "pointer", visibility: "hidden" });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
                               role: "img", "aria-label": `${title}: ${told(most)} at the most` },
    svg("path", { d: `M0 ${HEIGHT}${path}V${HEIGHT}Z` }), pointer);
  const words = document.createElement("figcaption");
  const name = document.createElement("span");
  const shown = document.createElement("span");
  name.textContent = title;
  const usual = `${told(most)} at the most`;
  shown.textContent = usual;
  shown.className = "muted";
  words.append(name, shown);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const part = (/** @type {PointerEvent} */ (event).clientX - box.left) / Math.max(1, box.width);
    const index = Math.min(values.length - 1, Math.max(0, Math.floor(part * values.length)));
    const at = (index + 0.5) * step;
    for (const end of ["x1", "x2"]) pointer.setAttribute(end, String(at));
    pointer.setAttribute("visibility", "visible");
    shown.textContent = `${told(values[index] ?? 0)} at ${time(index * period)}`;
  });
  picture.addEventListener("pointerleave", () => {
    pointer.setAttribute("visibility", "hidden");
    shown.textContent = usual;
  });
  const figure = document.createElement("figure");
  figure.append(words, picture);
  return figure;
}

/**
 * Shows both charts in an element, with the time below.
 * @param {HTMLElement} element @param {Timeline} timeline @param {(value: number) => string} bytes
 */
export function showTimeline(element, { period_ms, live, total }, bytes) {
  const rates = total.map((value, index) =>
    Math.max(0, value - (total[index - 1] ?? 0)) * 1000 / period_ms);
  const axis = document.createElement("p");
  axis.className = "axis muted";
  for (const part of [0, 0.5, 1]) {
    const label = document.createElement("span");
    label.textContent = time(part * live.length * period_ms);
    axis.append(label);
  }
  element.replaceChildren(
    chart(live, period_ms, "In use", bytes),
    chart(rates, period_ms, "Allocated", (value) => `${bytes(value)}/s`),
    axis);
}
