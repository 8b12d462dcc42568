const epsilon = () => (find("noise").value === "exact" ? Infinity : Number(find("noise").value));
function print() {
  const count = (truth) => (epsilon() === Infinity ? String(truth) : (truth + mathematics.drawLaplace(1 / epsilon())).toFixed(1));
  const [march, april] = [count(202), count(201)];
  say("march", `Our school has 3,005 students. ${march} of them come from families that earn over 1 million dollars.`);
  say("april", `With 3,004 students, the school is as large as ever. ${april} families earn over 1 million dollars.`);
  const fell = Number(march) - Number(april);
  say("told", epsilon() === Infinity ? "One student left, and one rich student is missing: John is rich. This is certain."
    : `The count fell by ${fell.toFixed(1)}. A reader would say: John is ${fell > 0.5 ? "" : "not "}rich. It may be the noise.`);
}
function guessMany() {
  const right = mathematics.readNewspapers(epsilon(), 2000);
  const bound = epsilon() === Infinity ? 1 : mathematics.boundOfGame(epsilon());
  say("told", `${percent(right, 1)} of 2,000 readers are right, each about another student. A coin is right in 50% of cases.`);
  drawChart("chart", {
    alt: `${percent(right)} of readers are right`, most: 1, form: (value) => percent(value),
    bars: [{ label: "Readers who are right", value: right, color: 1 }, { label: "Most that epsilon allows", value: bound, color: 2 },
      { label: "A coin", value: 0.5, color: 4 }],
  });
}
onChange("noise", () => { eraseChart("chart"); print(); });
onClick("print", print);
onClick("many", guessMany);
print();
