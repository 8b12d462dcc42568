const RULES = {
  coins: "Toss a coin in secret. Tails: tell the truth. Heads: toss again, and say yes for heads, no for tails.",
  envelopes: "Draw one of three closed envelopes: “say yes”, “say no”, “tell the truth”.",
  die: "Throw a die in secret. 1 to 4: tell the truth. 5: say yes. 6: say no.",
};
const chosen = () => readChoice("design");
const people = bindSlider("people", clear);
const share = bindSlider("share", clear, (value) => percent(value), (value) => value / 100);

function answerOne(truth) {
  const { told, said } = mathematics.respond(chosen(), truth);
  say("one", `${told} You say: ${said ? "YES" : "NO"}.`);
}
function describe({ share: found, low, high }) {
  return `${percent(found, 1)}, and with 95% confidence between ${percent(Math.max(0, low), 1)} and ${percent(Math.min(1, high), 1)}`;
}
function askOnce() {
  const count = people();
  const yes = mathematics.askClass(chosen(), count, share());
  const found = mathematics.estimateShare(mathematics.DESIGNS[chosen()], yes, count);
  say("class", `${yes} of ${count} said yes. The estimate of the true share is ${describe(found)}.`);
  const [low, high] = [Math.max(0, found.low), Math.min(1, found.high)];
  drawChart("bars", {
    alt: `Said yes ${percent(yes / count)}, estimate ${percent(found.share)}, truth ${percent(share())}`,
    most: 1,
    form: (value) => percent(value),
    bars: [{ label: "Said yes", value: yes / count, color: 4 }, { label: "Estimate", value: found.share, low, high, color: 1 },
      { label: "Truth", value: share(), color: 3 }],
  });
}
function askMany() {
  const design = mathematics.DESIGNS[chosen()];
  const found = Array.from({ length: 200 }, () => mathematics
    .estimateShare(design, mathematics.askClass(chosen(), people(), share()), people()).share);
  const truth = Math.round(share() * people()) / people();
  // Estimates lie on a grid: bins of the same number of grid points each, around the mean of all estimates that can be.
  const step = 1 / people() / (design.yes - design.no);
  const bin = step * Math.max(1, Math.round(0.03 / step));
  const far = Math.max(0.1, ...found.map((value) => Math.abs(value - found[0])));
  const [low, high] = [found[0] - bin * Math.ceil(far / bin) - bin / 2 - step / 2, found[0] + bin * Math.ceil(far / bin) + bin / 2 - step / 2];
  say("class", `200 classes: the estimates are ${percent(mathematics.mean(found), 1)} on average, the truth is ${percent(truth, 1)}. `
    + `A single class is off by ${percent(mathematics.deviation(found), 1)}, typically.`);
  const values = countBins(found, low, high, Math.round((high - low) / bin));
  drawChart("classes", {
    alt: `Estimates of 200 classes, around the truth of ${percent(truth)}`,
    x: { label: "estimated share of yes", min: low, max: high, form: (value) => percent(value) },
    y: { label: "classes", min: 0, max: Math.max(...values.map((bin) => bin.y)) },
    layers: [{ kind: "bars", name: "estimates", color: 1, values }, { kind: "rule", name: "truth", color: 2, x: truth }],
  });
}
function estimateOwn() {
  const [count, yes] = [Number(find("asked").value), Number(find("said").value)];
  if (!(count >= 1) || !(yes >= 0) || yes > count) return say("own", "Enter how many were asked, and how many of them said yes.");
  return say("own", `The estimate for your class is ${describe(mathematics.estimateShare(mathematics.DESIGNS[chosen()], yes, count))}.`);
}
function clear() {
  const odds = Math.round(Math.exp(mathematics.epsilonOf(mathematics.DESIGNS[chosen()])));
  say("rule", `${RULES[chosen()]} Whoever hears the answer can change the odds by a factor of ${odds} at most: epsilon is ln ${odds}.`);
  say("one", "");
  say("class", "");
  eraseChart("bars");
  eraseChart("classes");
  estimateOwn();
}
onChoice("design", clear);
onClick("answer-yes", () => answerOne(true));
onClick("answer-no", () => answerOne(false));
onClick("ask", askOnce);
onClick("ask-many", askMany);
for (const name of ["asked", "said"]) find(name).addEventListener("input", estimateOwn);
clear();
