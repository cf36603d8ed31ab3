"use strict";

const plots = [...document.querySelectorAll(".plot")].map((place) => ({
  place,
  figure: JSON.parse(place.querySelector("script").textContent),
  drawn: false,
}));

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The light colours of page.css, for pictures that go into documents.
const PRINT = { "--line": "#dde3ea", "--ground": "#f5f7fa", "--accent": "#2f62c4", "--quiet": "#1c2430",
  "--card": "#ffffff", "--text": "#1c2430" };

function template(colourOf) {
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
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colourOf("--quiet"), activecolor: colourOf("--accent") },
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
  const settings = { dragmode: byMouse ? "zoom" : false, template: template(colourOf) };
  Plotly.react(plot.place, data, { ...layout, ...settings }, config(plot.place));
}

// Two buttons appear over a plot: its picture as SVG or PNG, on white whatever the page's colours.
function config(place) {
  const button = (format, icon) => ({
    name: `Download as ${format.toUpperCase()}`,
    icon,
    click: () => download(place, format),
  });
  return {
    responsive: true,
    displaylogo: false,
    displayModeBar: "hover",
    modeBarButtons: [[button("svg", Plotly.Icons.disk), button("png", Plotly.Icons.camera)], ["zoom2d", "pan2d", "resetScale2d"]],
  };
}

function download(place, format) {
  const { data, layout } = plots.find((plot) => plot.place === place).figure;
  const filename = place.getAttribute("aria-label").toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const onWhite = { ...layout, template: template((name) => PRINT[name]), paper_bgcolor: "white", plot_bgcolor: "white" };
  const size = { width: place.clientWidth, height: place.clientHeight, scale: format === "png" ? 2 : 1 };
  return Plotly.downloadImage({ data, layout: onWhite }, { format, filename, ...size });
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
