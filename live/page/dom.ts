// DOM helpers.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | EventListener | undefined>;

// Creates an element. Function values are listeners for "on..." attributes.
export function h(tag: string, attributes: Attributes = {}, ...children: Child[]): HTMLElement {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value);
    } else if (name === "style") {
      // Not an attribute, which the page's content security policy may forbid.
      element.style.cssText = String(value);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter((child): child is Node | string => !!child || child === ""));
  return element;
}

export function byId(id: string): HTMLElement {
  return document.getElementById(id)!;
}

export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren(...children.filter((child): child is Node | string => !!child));
}

export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const tip = () => byId("tip");

// Below and right of a point; above `top` where there is no room below.
export function showTip(text: string, x: number, y: number, top = y): void {
  const box = tip();
  box.textContent = text;
  box.hidden = false;
  const width = box.offsetWidth, height = box.offsetHeight;
  box.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 4))}px`;
  box.style.top = `${y + 16 + height > innerHeight ? Math.max(4, top - height - 8) : y + 16}px`;
}

export function hideTip(): void {
  tip().hidden = true;
}

// A tooltip at the element, also shown on keyboard focus.
export function explain(element: HTMLElement, text: string): HTMLElement {
  // Below the element, which keeps its value in view.
  const show = () => {
    const box = element.getBoundingClientRect();
    showTip(text, box.left - 8, box.bottom - 10, box.top);
  };
  element.addEventListener("pointerenter", show);
  element.addEventListener("pointerleave", hideTip);
  element.addEventListener("focus", () => {
    if (element.matches(":focus-visible")) show();
  });
  element.addEventListener("blur", hideTip);
  return element;
}

export function download(name: string, type: string, content: BlobPart): void {
  const link = h("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
  (link as HTMLAnchorElement).click();
  setTimeout(() => URL.revokeObjectURL((link as HTMLAnchorElement).href), 1000);
}
