const SHARES = [6, 14, 20, 12, 18, 8, 13, 7, 2];
const SLEEP = ["under 7 h", "7 to 9 h", "over 9 h"];
const students = bindSlider("students", clear, (value) => (100 * value).toLocaleString("en"));
const epsilon = bindSlider("epsilon", clear, (value) => value.toFixed(2), (place) => 10 ** (place / 10));
const real = () => SHARES.map((share) => share * students());

function show(counts, made) {
  fillTable("counts", SLEEP.map((name, row) => [name, ...[0, 1, 2].map((column) => {
    const at = 3 * row + column;
    return made ? `${counts[at].toLocaleString("en")} / ${made[at].toLocaleString("en")}` : counts[at].toLocaleString("en");
  })]));
}
function makeRows() {
  const counts = real();
  const noisy = mathematics.addNoise(counts, epsilon());
  const rows = Math.max(1, Math.round(mathematics.sum(noisy))); // the true number of students is not used
  const made = mathematics.drawRows(noisy, rows);
  const far = mathematics.totalVariation(counts, made);
  const byChance = mathematics.totalVariation(counts, mathematics.drawRows(counts, rows));
  show(counts, made);
  say("told", `${rows.toLocaleString("en")} rows of nobody were drawn. ${percent(far, 1)} of them would have to change to match the real table; `
    + `drawing alone, without noise, gives ${percent(byChance, 1)}.`);
  drawChart("chart", {
    alt: `Total variation: ${percent(far, 1)} with noise, ${percent(byChance, 1)} without`, most: Math.max(0.2, far, byChance), form: (value) => percent(value, 1),
    bars: [{ label: "Rows to change, with noise", value: far, color: 2 }, { label: "Rows to change, drawn without noise", value: byChance, color: 3 }],
  });
}
function clear() {
  say("told", "Nothing was made yet.");
  show(real(), null);
  eraseChart("chart");
}
onClick("make", makeRows);
clear();
