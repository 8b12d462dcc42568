// What the toys of the lessons share: controls, words that are announced, and drawings. Text is set, never HTML.
const find = (name) => document.getElementById(name);
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;
const say = (name, text) => { find(name).textContent = text; };

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A slider whose value is shown beside it; `read` turns its position into a number, `show` into words.
function bindSlider(name, change, show = String, read = Number) {
  const input = find(name);
  const told = input.parentElement.querySelector("output");
  const tell = () => {
    told.textContent = show(read(input.value));
    input.setAttribute("aria-valuetext", told.textContent);
  };
  input.addEventListener("input", () => { tell(); change(); });
  tell();
  return () => read(input.value);
}
const onClick = (name, act) => find(name).addEventListener("click", act);
const onChange = (name, act) => find(name).addEventListener("change", act);
const readChoice = (name) => document.querySelector(`input[name=${name}]:checked`).value;
const onChoice = (name, act) => document.querySelectorAll(`input[name=${name}]`)
  .forEach((input) => input.addEventListener("change", act));

// Rows into the body of a table; a cell is text or an element, and `mark` names the class of a row.
function fillTable(name, rows, mark = () => "") {
  find(name).querySelector("tbody").replaceChildren(...rows.map((row, at) => make(
    "tr", mark(row, at) ? { class: mark(row, at) } : {}, ...row.map((cell) => make("td", {}, cell instanceof Node ? cell : String(cell))),
  )));
}

const SPACE = "http://www.w3.org/2000/svg";
function draw(tag, attributes, text) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
// About `count` round numbers between two ends.
function listTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 5, 10].find((each) => each * unit >= rough * 0.999) ?? 10);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) ticks.push(Number((at * step).toPrecision(12)));
  return ticks;
}
const drawings = new Map();
// A drawing is made again when its place changes width, so that letters keep their size.
function drawChart(name, chart) {
  const place = find(name);
  drawings.set(place, chart);
  paint(place, chart);
  watcher.observe(place);
}
const watcher = new ResizeObserver((changes) => changes.forEach(({ target }) => {
  if (target.dataset.width !== String(target.clientWidth)) paint(target, drawings.get(target));
}));

function paint(place, chart) {
  const width = Math.max(220, place.clientWidth || 640);
  place.dataset.width = String(place.clientWidth);
  const svg = chart.bars ? paintBars(chart, width) : paintAxes(chart, width);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", chart.alt);
  const named = (chart.layers ?? []).filter((layer) => layer.name);
  const legend = named.length > 1
    ? [make("ul", { class: "legend" }, ...named.map((layer) => make("li", { class: `series-${layer.color} ${layer.kind}` }, layer.name)))]
    : [];
  place.replaceChildren(...legend, svg);
}

// Bars that lie, each under its own label: no label is cut, on a phone neither.
function paintBars({ bars, most, form = String }, width) {
  const [row, margin] = [46, 8];
  const svg = draw("svg", { viewBox: `0 0 ${width} ${row * bars.length}`, width, height: row * bars.length });
  const scale = (value) => margin + (width - 2 * margin) * Math.min(1, Math.max(0, value / (most || 1)));
  bars.forEach(({ label, value, low, high, color = 1 }, at) => {
    const top = at * row;
    const told = low === undefined ? form(value) : `${form(value)} (${form(low)} to ${form(high)})`;
    svg.append(draw("text", { x: margin, y: top + 14, class: "label" }, `${label}: ${told}`));
    svg.append(draw("rect", { x: margin, y: top + 20, width: width - 2 * margin, height: 14, class: "track" }));
    svg.append(draw("rect", { x: margin, y: top + 20, width: Math.max(0, scale(value) - margin), height: 14, class: `fill series-${color}` }));
    if (low !== undefined) svg.append(draw("path", { d: `M${scale(low)} ${top + 27}H${scale(high)}M${scale(low)} ${top + 21}v12M${scale(high)} ${top + 21}v12`, class: "whisker" }));
  });
  return svg;
}

// Axes with layers: `bars` of {x0, x1, y}, `line` and `points` of [x, y], `rule` at x or at y.
function paintAxes({ x, y, layers, height = 260 }, width) {
  const form = (axis, value) => (axis.form ? axis.form(value) : value.toLocaleString("en"));
  const ticks = (axis, count) => axis.ticks ?? listTicks(axis.min, axis.max, count);
  const left = 14 + 7.2 * Math.max(...ticks(y, 4).map((tick) => form(y, tick).length));
  const frame = { left, right: width - 16, top: 24, bottom: height - 40 };
  const place = (axis, value, from, to) => {
    const turn = axis.log ? Math.log : (number) => number;
    return from + ((to - from) * (turn(value) - turn(axis.min))) / (turn(axis.max) - turn(axis.min));
  };
  const across = (value) => Math.min(frame.right, Math.max(frame.left, place(x, value, frame.left, frame.right)));
  const along = (value) => Math.min(frame.bottom, Math.max(frame.top, place(y, value, frame.bottom, frame.top)));
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height });
  for (const tick of ticks(y, 4)) {
    svg.append(draw("line", { x1: frame.left, x2: frame.right, y1: along(tick), y2: along(tick), class: "grid" }));
    svg.append(draw("text", { x: frame.left - 6, y: along(tick) + 4, class: "tick end" }, form(y, tick)));
  }
  for (const tick of ticks(x, width < 450 ? 4 : 7)) {
    const half = 4 * form(x, tick).length;
    const middle = Math.min(width - half, Math.max(half, across(tick)));
    svg.append(draw("text", { x: middle, y: frame.bottom + 16, class: "tick middle" }, form(x, tick)));
  }
  svg.append(draw("line", { x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom, class: "axis" }));
  svg.append(draw("text", { x: 2, y: 13, class: "label" }, y.label));
  svg.append(draw("text", { x: frame.right, y: height - 6, class: "label end" }, x.label));
  for (const layer of layers) paintLayer(svg, layer, frame, across, along);
  return svg;
}
function paintLayer(svg, layer, frame, across, along) {
  const color = `series-${layer.color}`;
  if (layer.kind === "bars") {
    for (const { x0, x1, y } of layer.values) {
      const [from, to] = [across(x0), across(x1)];
      if (to > from) svg.append(draw("rect", { x: from, y: along(y), width: Math.max(1, to - from - 1), height: frame.bottom - along(y), class: `fill ${color}` }));
    }
  } else if (layer.kind === "line") {
    const path = layer.values.map(([x, y], at) => `${at ? "L" : "M"}${across(x).toFixed(1)} ${along(y).toFixed(1)}`).join("");
    svg.append(draw("path", { d: path, class: `line ${color}` }));
  } else if (layer.kind === "points") {
    for (const [x, y] of layer.values) svg.append(draw("circle", { cx: across(x), cy: along(y), r: 4, class: `fill ${color}` }));
  } else {
    const at = layer.x === undefined
      ? { x1: frame.left, x2: frame.right, y1: along(layer.y), y2: along(layer.y) }
      : { x1: across(layer.x), x2: across(layer.x), y1: frame.top, y2: frame.bottom };
    svg.append(draw("line", { ...at, class: `rule ${color}` }));
  }
}
// How many values fall into each of equal bins; what lies beyond the ends is counted in the first or the last.
function countBins(values, low, high, bins) {
  const width = (high - low) / bins;
  const counts = Array(bins).fill(0);
  for (const value of values) counts[Math.min(bins - 1, Math.max(0, Math.floor((value - low) / width)))] += 1;
  return counts.map((y, at) => ({ x0: low + at * width, x1: low + (at + 1) * width, y }));
}

// Commands are copied by a button; where a page may not write to the clipboard, they are selected.
for (const box of document.querySelectorAll(".command pre")) {
  const button = make("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    const text = box.textContent;
    const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    if (!copied) window.getSelection().selectAllChildren(box);
    button.textContent = copied ? "Copied" : "Selected: copy with your keys";
    window.setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  box.before(button);
}

// On paper every fold is open, then closed again as the reader left it.
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((fold) => { fold.open = true; });
});
window.addEventListener("afterprint", () => closed.forEach((fold) => { fold.open = false; }));
function eraseChart(name) {
  watcher.unobserve(find(name));
  find(name).replaceChildren();
}
