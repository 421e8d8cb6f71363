// What the panels have in common.

import type { State } from "./types";

export interface Panel {
  element: HTMLElement;
  // New figures, or the panel was opened.
  update(state: State, opened: boolean): void;
}
