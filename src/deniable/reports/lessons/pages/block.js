const printed = bindSlider("printed", () => { say("solved", ""); eraseChart("chart"); });
const inputs = [...find("ages").querySelectorAll("input")];
function check() {
  const ages = inputs.map((input) => (input.value === "" ? NaN : Number(input.value)));
  if (ages.some((age) => !Number.isInteger(age) || age < 0 || age > 90)) return say("told", "Enter five whole ages from 0 to 90.");
  const held = mathematics.checkBlock(ages.slice(0, 3), ages.slice(3));
  fillTable("figures", mathematics.FIGURES.map((figure, at) => [figure.words, held[at] ? "right" : "not yet"]));
  const right = held.filter(Boolean).length;
  return say("told", right === 5 ? "All five figures are right: you have found everybody's age." : `${right} of 5 figures are right.`);
}
function solve() {
  const counts = Array.from({ length: printed() + 1 }, (_, at) => mathematics.solveBlock(at));
  const { count, blocks } = counts.at(-1);
  const tell = count === 1 ? `Only one block is left: women of ${blocks[0][0].join(", ")} and men of ${blocks[0][1].join(", ")}.`
    : `${count.toLocaleString("en")} blocks are possible${printed() ? `: they fit the first ${printed()} of the figures` : ""}.`;
  say("solved", tell);
  drawChart("chart", {
    alt: `Blocks that fit after each figure: ${counts.map((each) => each.count.toLocaleString("en")).join(", ")}`, most: Math.log10(counts[0].count) || 1,
    form: (value) => Math.round(10 ** value - 1).toLocaleString("en"),
    bars: counts.map((each, at) => ({ label: at ? mathematics.FIGURES[at - 1].words : "nothing printed", value: Math.log10(each.count + 1), color: each.count === 1 ? 2 : 1 })),
  });
}
inputs.forEach((input) => input.addEventListener("input", check));
onClick("solve", solve);
check();
