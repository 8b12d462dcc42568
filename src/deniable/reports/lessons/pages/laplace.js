const TRUTH = 120;
let answers = [];
const reset = () => { answers = []; show(); };
const sensitivity = bindSlider("sensitivity", reset);
const epsilon = bindSlider("epsilon", reset, (value) => value.toFixed(2), (place) => 10 ** (place / 10));

function ask(times) {
  for (let time = 0; time < times; time += 1) answers.push(TRUTH + mathematics.drawLaplace(sensitivity() / epsilon()));
  show();
}
function show() {
  const scale = sensitivity() / epsilon();
  const half = Math.max(4.5 * scale, 2 * sensitivity());
  const [low, high] = [TRUTH - half, TRUTH + half];
  const [bins, width] = [31, (2 * half) / 31];
  const curve = (middle) => Array.from({ length: 121 }, (_, at) => low + (at * (high - low)) / 120)
    .map((x) => [x, (answers.length || 100) * width * mathematics.laplaceDensity(x - middle, scale)]);
  const values = countBins(answers, low, high, bins);
  const curves = [curve(TRUTH), curve(TRUTH - sensitivity())];
  const most = Math.max(...values.map((bin) => bin.y), ...curves.flat().map(([, y]) => y));
  drawChart("chart", {
    alt: `${answers.length} answers around the truth of ${TRUTH}, with the curve expected with and without one person`,
    x: { label: "answer", min: low, max: high },
    y: { label: answers.length ? "answers" : "expected of 100 answers", min: 0, max: most },
    layers: [{ kind: "bars", name: "answers", color: 1, values },
      { kind: "line", name: "expected with the person", color: 3, values: curves[0] },
      { kind: "line", name: "expected without", color: 2, values: curves[1] }],
  });
  const last = answers.at(-1);
  say("told", answers.length === 0 ? "Nothing was asked yet."
    : `The last answer is ${last.toFixed(1)}, off by ${Math.abs(last - TRUTH).toFixed(1)}. ${answers.length} asked; `
      + `their mean is ${mathematics.mean(answers).toFixed(1)}, and epsilon in all is ${(answers.length * epsilon()).toFixed(2)}.`);
  say("scale", `Scale of the noise: ${sensitivity()} / ${epsilon().toFixed(2)} = ${scale.toFixed(2)}. 95 of 100 answers lie within `
    + `${(scale * Math.log(20)).toFixed(1)} of the truth. At every place the two curves differ by a factor of at most `
    + `${Math.exp(epsilon()).toFixed(2)}.`);
}
onClick("ask", () => ask(1));
onClick("ask-many", () => ask(100));
onClick("clear", reset);
show();
