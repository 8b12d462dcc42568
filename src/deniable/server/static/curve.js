// The curve of error against epsilon, on two logarithmic scales, with a handle that is dragged or moved by keys.
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 198, TOP = 12, BASE = 150, LEFT = 12, WIDTH = 84;
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const KEYS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5 };

export class Curve {
  constructor(figure, moved) {
    this.figure = figure;
    this.plot = figure.querySelector(".plot");
    this.legend = figure.querySelector(".legend");
    this.moved = moved;
    this.epsilon = 0.1;
  }

  draw(points, epsilon) {
    const lines = group(points);
    this.figure.hidden = lines.size === 0;
    if (!lines.size) return;
    const listed = [...lines.values()].flat();
    this.low = Math.min(...listed.map((each) => each.epsilon));
    this.high = Math.max(...listed.map((each) => each.epsilon));
    const errors = listed.map((each) => each.error);
    this.least = Math.min(...errors) / 1.3;
    this.most = Math.max(...errors) * 1.3;
    this.lines = lines;
    this.svg = make("svg", { class: "chart", width: "100%", height: HEIGHT });
    this.svg.append(...this.axes(), ...[...lines.values()].flatMap((line, place) => this.line(line, place)));
    this.handle = make("circle", { class: "handle", r: 11, tabindex: 0, role: "slider", "aria-label": "Epsilon",
      "aria-valuemin": this.low, "aria-valuemax": this.high });
    this.guide = make("line", { class: "guide", y1: TOP, y2: BASE });
    this.svg.append(this.guide, this.handle);
    this.listen();
    this.plot.replaceChildren(this.svg);
    this.legend.replaceChildren(...[...lines.keys()].map((name, place) => {
      const item = document.createElement("span");
      item.className = `key c${place}`;
      item.textContent = (lines.get(name)[0].error_in === "ranks" ? "places off: " : "") + name.replace(/ about [^,]+/, "").replace(/, values clamped to .*/, "");  // as in the plan
      return item;
    }));
    this.show(epsilon);
  }

  // Where the handle is; an epsilon beyond the curve is shown at its end.
  show(epsilon) {
    if (!this.handle || !(epsilon > 0)) return;
    this.epsilon = Math.min(this.high, Math.max(this.low, epsilon));
    const first = this.lines.values().next().value, error = between(first, this.epsilon);
    for (const [name, value] of [["cx", this.x(this.epsilon)], ["cy", this.y(error)]]) this.handle.setAttribute(name, value);
    for (const name of ["x1", "x2"]) this.guide.setAttribute(name, this.x(this.epsilon));
    this.handle.setAttribute("aria-valuenow", epsilon);
    this.handle.setAttribute("aria-valuetext", `epsilon ${epsilon}, error about ${round(error)}`);
  }

  listen() {
    this.handle.addEventListener("keydown", (event) => {
      if (!(event.key in KEYS) && event.key !== "Home" && event.key !== "End") return;
      event.preventDefault();
      const to = event.key === "Home" ? this.low : event.key === "End" ? this.high : this.epsilon * 1.1 ** KEYS[event.key];
      this.move(to);
    });
    this.svg.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.svg.setPointerCapture(event.pointerId);
      this.handle.focus();
      this.follow(event);
      this.dragging = true;
    });
    this.svg.addEventListener("pointermove", (event) => this.dragging && this.follow(event));
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, () => { this.dragging = false; });
  }

  follow(event) {
    const box = this.svg.getBoundingClientRect();
    const share = (((event.clientX - box.left) / box.width) * 100 - LEFT) / WIDTH;
    this.move(this.low * (this.high / this.low) ** Math.min(1, Math.max(0, share)));
  }

  move(to) {
    const epsilon = Number(Math.min(this.high, Math.max(this.low, to)).toPrecision(2));
    this.show(epsilon);
    this.moved(epsilon);
  }

  x(epsilon) { return `${LEFT + (WIDTH * Math.log(epsilon / this.low)) / Math.log(this.high / this.low)}%`; }
  y(error) { return BASE - ((BASE - TOP) * Math.log(error / this.least)) / Math.log(this.most / this.least); }

  line(points, place) {
    return points.slice(1).map((point, at) => make("line", { class: `curve-line c${place}`, x1: this.x(points[at].epsilon),
      x2: this.x(point.epsilon), y1: this.y(points[at].error), y2: this.y(point.error) }));
  }

  axes() {
    const parts = [];
    for (const mark of [0.01, 0.1, 1, 10].filter((each) => each >= this.low && each <= this.high)) {
      parts.push(make("line", { class: "grid", x1: this.x(mark), x2: this.x(mark), y1: TOP, y2: BASE }));
      parts.push(make("text", { class: "mark", x: this.x(mark), y: BASE + 18, "text-anchor": "middle" }, String(mark)));
    }
    parts.push(make("text", { class: "mark", x: `${LEFT + WIDTH / 2}%`, y: BASE + 36, "text-anchor": "middle" }, "epsilon"));
    for (let power = Math.ceil(Math.log10(this.least)); 10 ** power <= this.most; power += 1) {
      const y = this.y(10 ** power);
      parts.push(make("line", { class: "grid", x1: `${LEFT}%`, x2: `${LEFT + WIDTH}%`, y1: y, y2: y }));
      parts.push(make("text", { class: "mark", x: `${LEFT - 1}%`, y: y + 4, "text-anchor": "end" }, round(10 ** power)));
    }
    return parts;
  }
}

// The first measurements, each with its points in order; errors in ranks are on a scale of their own, and left out
// beside others.
function group(points) {
  const lines = new Map(), mixed = points.some((each) => each.error_in !== "ranks");
  for (const each of points) {
    if ((mixed && each.error_in === "ranks") || !(each.error > 0)) continue;
    if (!lines.has(each.measurement) && lines.size === 4) continue;
    lines.set(each.measurement, [...(lines.get(each.measurement) ?? []), each]);
  }
  return new Map([...lines].filter(([, line]) => line.length > 1));
}

function between(line, epsilon) {
  const after = Math.max(1, line.findIndex((each) => each.epsilon >= epsilon));
  const [one, two] = [line[after - 1], line[after]];
  const share = Math.log(epsilon / one.epsilon) / Math.log(two.epsilon / one.epsilon);
  return one.error * (two.error / one.error) ** Math.min(1, Math.max(0, share));
}

function round(value) {
  if (value >= 1000 && value < 10000) return Math.round(value).toLocaleString("en");
  return value >= 10000 ? COMPACT.format(value) : String(Number(value.toPrecision(3)));
}

function make(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
