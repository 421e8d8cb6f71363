// The interface of panels.

import type { State } from "./types";

export interface Panel {
  element: HTMLElement;
  // Called with new figures, and when the panel is opened.
  update(state: State, opened: boolean): void;
}
