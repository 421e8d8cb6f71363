// The page's copy of the timeline, in columns.

import type { State } from "./types";

export class History {
  thinned = 0;
  marks: { at_ms: number; label: string }[] = [];
  private fields: string[] = [];
  private columns: number[][] = [];

  get newest(): number {
    const numbers = this.columns[0];
    return numbers?.length ? numbers[numbers.length - 1]! : 0;
  }
  get length(): number {
    return this.columns[0]?.length ?? 0;
  }

  add(history: State["history"]): void {
    this.fields = history.fields;
    if (history.thinned !== this.thinned || this.columns.length === 0) {
      this.columns = this.fields.map(() => []);
      this.thinned = history.thinned;
    }
    for (const point of history.points) {
      point.forEach((value, index) => this.columns[index]!.push(value));
    }
    this.marks = history.marks;
  }

  // Of a program that the process has executed since, nothing is known.
  forget(): void {
    this.columns = [];
    this.marks = [];
  }

  column(field: string): number[] {
    return this.columns[this.fields.indexOf(field)] ?? [];
  }

  csv(): string {
    const lines = [this.fields.join(",")];
    for (let i = 0; i < this.length; ++i) {
      lines.push(this.columns.map((column) => column[i]).join(","));
    }
    return `${lines.join("\n")}\n`;
  }
}
