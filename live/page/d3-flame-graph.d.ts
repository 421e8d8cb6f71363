// Types for the used part of d3-flame-graph, which has none.
declare module "d3-flame-graph" {
  import type { Selection } from "d3-selection";

  interface Frame<Data> {
    data: Data;
    value: number;
    highlight?: boolean;
  }
  interface FlameGraph<Data = any> {
    (selection: Selection<HTMLElement, Data, null, undefined>): void;
    width(pixels: number): this;
    cellHeight(pixels: number): this;
    minFrameSize(pixels: number): this;
    transitionDuration(ms: number): this;
    inverted(yes: boolean): this;
    sort(yes: boolean): this;
    selfValue(yes: boolean): this;
    title(text: string): this;
    setColorMapper(map: (frame: Frame<Data>, original: string) => string): this;
    setLabelHandler(label: (frame: Frame<Data>) => string): this;
    setDetailsHandler(handler: (text: string | null) => void): this;
    onHover(handler: (frame: Frame<Data>) => void): this;
    update(data: Data): void;
    search(text: string): void;
  }
  export default function flamegraph(): FlameGraph;
}
declare module "*.css";
