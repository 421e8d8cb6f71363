"use strict";
(() => {
  const { figures, looks } = JSON.parse(document.getElementById("drawings").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const hidden = new Set();
  const drawn = new Set();

  const colourOf = (peer) => looks[peer][dark.matches ? "dark" : "light"];

  // A trace as the reader sees it: the data say whose it is, the look comes from there.
  function dressed(trace, ink) {
    const look = looks[trace.meta.peer];
    const colour = colourOf(trace.meta.peer);
    if (trace.meta.runs) {
      return { ...trace, marker: { color: ink, size: 5, opacity: 0.4 } };
    }
    if (trace.type === "bar") {
      return { ...trace, marker: { color: colour }, error_x: { ...trace.error_x, color: ink } };
    }
    return {
      ...trace,
      marker: { size: 7, ...trace.marker, color: colour, symbol: look.symbol },
      line: { color: colour, dash: look.dash, width: trace.meta.peer === "allod" ? 3 : 2 },
    };
  }

  function axis(given, grid) {
    const found = {
      gridcolor: grid,
      zerolinecolor: grid,
      linecolor: grid,
      exponentformat: "power",
      ...given,
    };
    if (given.categoryarray) {
      const kept = given.tickvals.map((name) => !hidden.has(name));
      found.tickvals = given.tickvals.filter((_, i) => kept[i]);
      found.ticktext = given.ticktext.filter((_, i) => kept[i]);
      found.categoryarray = given.categoryarray.filter((name) => !hidden.has(name));
    }
    return found;
  }

  function draw(element) {
    const figure = figures[element.dataset.figure];
    const style = getComputedStyle(document.documentElement);
    const [ink, ground, grid] = ["--ink", "--ground", "--grid"].map((name) =>
      style.getPropertyValue(name).trim(),
    );
    const data = figure.data
      .filter((trace) => !hidden.has(trace.meta.peer))
      .map((trace) => dressed(trace, ink));
    const layout = {
      ...figure.layout,
      xaxis: axis(figure.layout.xaxis, grid),
      yaxis: axis(figure.layout.yaxis, grid),
      font: { color: ink, size: narrow.matches ? 11 : 12, family: "system-ui, sans-serif" },
      paper_bgcolor: ground,
      plot_bgcolor: ground,
      hoverlabel: { bgcolor: ground, bordercolor: ink, font: { color: ink } },
      showlegend: false,
      // A finger that scrolls the page must not zoom a chart.
      dragmode: narrow.matches ? false : "zoom",
      margin: { l: 48, r: 12, t: 8, b: 44 },
      height: figure.height,
    };
    Plotly.react(element, data, layout, { responsive: true, displayModeBar: false });
    drawn.add(element);
  }

  function redraw() {
    for (const label of document.querySelectorAll("[data-peer]")) {
      label.querySelector("rect").style.fill = colourOf(label.dataset.peer);
    }
    drawn.forEach(draw);
  }

  const plots = document.querySelectorAll(".plot");
  // A page has some hundred charts; each is drawn when it comes near.
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) {
          near.unobserve(target);
          draw(target);
        }
      }
    },
    { rootMargin: "600px" },
  );
  plots.forEach((element) => near.observe(element));
  addEventListener("beforeprint", () => plots.forEach(draw));
  dark.addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
  document.querySelector(".peers").addEventListener("change", ({ target }) => {
    if (target.checked) {
      hidden.delete(target.value);
    } else {
      hidden.add(target.value);
    }
    redraw();
  });
  redraw();
})();
