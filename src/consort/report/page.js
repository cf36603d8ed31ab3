"use strict";

const plots = [...document.querySelectorAll(".plot")].map((place) => ({
  place,
  figure: JSON.parse(place.querySelector("script").textContent),
  drawn: false,
}));

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function template() {
  const axis = {
    gridcolor: colourOf("--line"),
    zerolinecolor: colourOf("--line"),
    linecolor: colourOf("--line"),
    automargin: true,
    title: { standoff: 8 },
  };
  return {
    data: { heatmap: [{ colorscale: [[0, colourOf("--ground")], [1, colourOf("--accent")]] }] },
    layout: {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colourOf("--quiet") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: colourOf("--card"), font: { color: colourOf("--text") } },
      legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom" },
      margin: { l: 48, r: 12, t: 12, b: 44 },
      xaxis: axis,
      yaxis: axis,
    },
  };
}

function draw(plot) {
  plot.drawn = true;
  plot.place.setAttribute("data-drawn", "");
  const { data, layout } = plot.figure;
  const byMouse = matchMedia("(pointer: fine)").matches;
  const settings = { dragmode: byMouse ? "zoom" : false, template: template() };
  Plotly.react(plot.place, data, { ...layout, ...settings }, { displayModeBar: false, responsive: true });
}

// Pictures are drawn when they come near the window, so that long pages open at once.
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((entry) => entry.isIntersecting)) {
    observer.unobserve(entry.target);
    draw(plots.find((plot) => plot.place === entry.target));
  }
}, { rootMargin: "400px" });

for (const plot of plots) observer.observe(plot.place);

addEventListener("beforeprint", () => plots.filter((plot) => !plot.drawn).forEach(draw));

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  plots.filter((plot) => plot.drawn).forEach(draw));

function compare(one, other, column, sign) {
  const [a, b] = [one.cells[column], other.cells[column]];
  if (!a.classList.contains("number")) {
    return sign * a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  }
  const [x, y] = [a.dataset.value, b.dataset.value];
  if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
  return sign * (x - y);
}

function sort(head) {
  const sign = head.ariaSort === "ascending" ? -1 : 1;
  const body = head.closest("table").tBodies[0];
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  body.append(...[...body.rows].sort((a, b) => compare(a, b, head.cellIndex, sign)));
}

for (const head of document.querySelectorAll("th")) {
  const first = head.closest("table").tBodies[0].rows[0];
  if (first?.cells[head.cellIndex].classList.contains("number")) head.classList.add("number");
  head.firstElementChild.addEventListener("click", () => sort(head));
}
