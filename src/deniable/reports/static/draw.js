// Draws each plot of the page from the specification lying beside it. Nothing is fetched: the loader refuses every
// address, and expressions are interpreted, not evaluated, so that the page works under a policy without `eval`.
const refusingLoader = vega.loader();
refusingLoader.load = (address) => Promise.reject(new Error("this page fetches nothing: " + address));

// Long names beside bars and cells are broken into lines, so that none is cut; the legend has as many columns as fit,
// and an axis as many labels as do: were they too many, every other one would be left out, and 0 with them.
const SYMBOL = 44, LABEL = 130, UPRIGHT = 150, MAP = 700, CROWD = 640;
const pen = document.createElement("canvas").getContext("2d");
const measure = (text) => pen.measureText(text).width;
const cutWord = (word, room) => {
  const parts = [""];
  for (const letter of word) {
    if (parts.at(-1) && measure(parts.at(-1) + letter) > room) parts.push("");
    parts[parts.length - 1] += letter;
  }
  return parts;
};
const breakLines = (text, room) => {
  const lines = [""];
  for (const word of text.split(/(?<=[\s_,/-])/).flatMap((each) => cutWord(each, room))) {
    if (lines.at(-1) && measure(lines.at(-1) + word.trimEnd()) > room) lines.push("");
    lines[lines.length - 1] += word;
  }
  return lines.map((line) => line.trimEnd()).join("\n");
};
function fitWidth(spec, width) {
  fitLegend(spec, width);
  fitTicks(spec.encoding?.x, width);
  if (spec.name === "crowd") spec.width = Math.min(width, CROWD);  // people stand close together
  if (spec.name === "map") spec.height = Math.round(spec.height * Math.min(1, width / MAP));  // a map keeps its shape
  pen.font = `${spec.config.axis.labelFontSize}px ${spec.config.font}`;
  wrapLabels(spec, spec.encoding?.y, () => Math.min(0.36 * width, 260));
  const upright = spec.encoding?.x?.axis?.labelAngle === -90;
  wrapLabels(spec, spec.encoding?.x, (count) => {
    const column = (0.58 * width) / count;
    if (!upright) return Math.max(36, column);
    return column < 2.4 * spec.config.axis.labelFontSize ? 2 * UPRIGHT : UPRIGHT;  // two lines would touch the next name
  });
}
function fitLegend(spec, width) {
  const layers = [spec, ...(spec.layer ?? []).flatMap((each) => [each, ...(each.layer ?? [])])];
  const names = layers.flatMap((each) => (each.encoding?.color?.legend && each.encoding.color.scale?.domain) || []).map(String);
  pen.font = `${spec.config.legend.labelFontSize}px ${spec.config.font}`;
  const widest = Math.max(0, ...names.map(measure)) + SYMBOL;
  spec.config.legend.columns = Math.max(1, Math.min(names.length || 1, Math.floor((width - SYMBOL) / widest)));
  spec.config.legend.labelLimit = width - SYMBOL;
}
function fitTicks(channel, width) {
  if (channel?.type !== "quantitative" || channel.axis === null || channel.axis?.values) return;
  channel.axis = { ...channel.axis, tickCount: Math.max(2, Math.min(channel.axis?.tickCount ?? 5, Math.floor(width / LABEL))) };
}
function wrapLabels(spec, channel, findRoom) {
  if (channel?.type !== "nominal" || !spec.data?.values) return;
  const field = channel.field.replace(/\\(.)/g, "$1");
  const room = findRoom(new Set(spec.data.values.map((row) => row[field])).size);
  for (const row of spec.data.values) if (typeof row[field] === "string") row[field] = breakLines(row[field], room);
  channel.axis = { ...channel.axis, labelLimit: 1.2 * room, labelExpr: "split(datum.label, '\\n')" };
}

async function draw(figure) {
  const spec = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  const place = figure.querySelector(".plot");
  try {
    fitWidth(spec, place.clientWidth);
    const runtime = vega.parse(vegaLite.compile(spec).spec, null, { ast: true });
    const view = new vega.View(runtime, {
      expr: expressionInterpreter,
      loader: refusingLoader,
      renderer: "svg",
      container: place,
      hover: true,
    });
    await view.runAsync();
    figure.dataset.drawn = "yes";
  } catch (failure) {
    place.textContent = "This plot could not be drawn; its numbers are in the table below.";
    figure.dataset.drawn = "no";
    figure.querySelector("details").open = true;
    console.error(failure);
  }
}

const drawAll = () => document.querySelectorAll("figure.vega:not([data-drawn])").forEach(draw);
drawAll();
document.addEventListener("plots", drawAll);  // a page that was given more of them

// On paper every short table of numbers is shown, then closed again as the reader left it.
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details.short:not([open])")];
  closed.forEach((twin) => (twin.open = true));
});
window.addEventListener("afterprint", () => closed.forEach((twin) => (twin.open = false)));
