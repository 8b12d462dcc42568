let [truth, answers, refused, fresh] = [0, [], 0, 0];
const each = bindSlider("each", restart, (value) => value.toFixed(1), (place) => place / 10);
const budget = bindSlider("budget", restart, (value) => (value > 50 ? "no limit" : value.toFixed(0)));

function restart() {
  truth = 20 + mathematics.pick(61);
  [answers, refused, fresh] = [[], 0, 0];
  say("secret", "");
  show();
}
function ask(times) {
  for (let time = 0; time < times; time += 1) {
    const stored = find("store").checked && answers.length > 0;
    if (!stored && budget() <= 50 && fresh >= mathematics.mostQuestions(budget(), each())) {
      refused += 1;
    } else {
      answers.push(stored ? answers[0] : truth + mathematics.drawLaplace(1 / each()));
      fresh += stored ? 0 : 1;
    }
  }
  show();
}
function show() {
  const means = [];
  let total = 0;
  answers.forEach((answer, at) => { total += answer; means.push([at + 1, total / (at + 1)]); });
  const spent = `Spent: epsilon ${(fresh * each()).toFixed(1)}${budget() > 50 ? "" : ` of ${budget()}`}.`;
  const last = answers.length ? `; the last is ${answers.at(-1).toFixed(1)}, their mean ${means.at(-1)[1].toFixed(2)}` : "";
  say("told", answers.length + refused === 0 ? "Nothing was asked yet."
    : `${answers.length} answers${last}. ${spent}${refused ? ` ${refused} questions were refused: the budget is used up.` : ""}`);
  drawChart("chart", {
    alt: `${answers.length} answers, and their mean after each`,
    x: { label: "questions", min: 0, max: Math.max(10, answers.length) },
    y: { label: "number", min: 0, max: 100 },
    layers: [{ kind: "points", name: "answers", color: 1, values: answers.map((answer, at) => [at + 1, answer]).slice(-400) },
      { kind: "line", name: "mean so far", color: 2, values: means }],
  });
}
function reveal() {
  const guess = find("guess").value;
  say("secret", `The secret was ${truth}.${guess ? ` You were off by ${Math.abs(Number(guess) - truth)}.` : ""}`);
}
onClick("ask", () => ask(1));
onClick("ask-many", () => ask(100));
onClick("again", restart);
onClick("reveal", reveal);
onChange("store", restart);
restart();
