const viewers = mathematics.makeRatings(500, 80, mathematics.makeSeeded(7));
const known = bindSlider("known", clear);
const wrong = bindSlider("wrong", clear);
const knowledge = () => ({
  known: known(), wrong: Math.min(wrong(), known() - 1), rare: find("rare").checked,
  days: find("days").value === "none" ? null : Number(find("days").value),
});

function lookForOne() {
  const able = viewers.filter((viewer) => mathematics.learnRatings(viewer, knowledge(), Math.random).length === known());
  if (!able.length) return say("told", "Nobody rated so many films outside the 20 most popular.");
  const target = able[mathematics.pick(able.length)];
  const clues = mathematics.learnRatings(target, knowledge(), Math.random);
  const fit = mathematics.findViewers(viewers, clues, knowledge());
  fillTable("clues", clues.map((clue) => [`Film ${clue.film + 1}`, "★".repeat(clue.stars), clue.day === null ? "unknown" : 1 + clue.day,
    viewers.filter((viewer) => mathematics.matchViewer(viewer, [clue], knowledge().days)).length]));
  const alone = fit.length === 1 && viewers[fit[0]] === target;
  return say("told", alone ? `Only viewer ${fit[0] + 1} fits. You now also know the other ${target.size - clues.length} films of your colleague.`
    : `${fit.length} viewers fit. Your colleague is hidden among them.`);
}
function tryAll() {
  const { found, tried } = mathematics.countFound(viewers, knowledge(), Math.random);
  const apart = known() === 1 ? "one rating" : `${known()} ratings`;
  if (!tried) return say("told", "Nobody rated so many films outside the 20 most popular.");
  say("told", `Whoever knows ${apart} like this finds ${found} of ${tried} viewers.`);
  return drawChart("chart", {
    alt: `${percent(found / tried)} of viewers are found`, most: 1, form: (value) => percent(value),
    bars: [{ label: "Viewers found", value: found / tried, color: 2 }],
  });
}
function clear() {
  say("told", "");
  fillTable("clues", [["–", "–", "–", "–"]]);
  eraseChart("chart");
}
onClick("one", lookForOne);
onClick("all", tryAll);
onChange("days", clear);
onChange("rare", clear);
clear();
