const VALUES = [24, 35, 41, 43, 44, 48, 50];
const NAMES = ["Ann", "Ben", "Cleo", "Doug", "Eli", "Fay", "Gus"];
const words = (cut) => (cut === 1 ? "1 person" : `${cut} people`);
const first = bindSlider("first", () => show(false), words);
const second = bindSlider("second", () => show(false), words);

function show(subtracted) {
  const means = [first(), second()].map((cut) => VALUES.map((_, at) => mathematics.mean(at < cut ? VALUES.slice(0, cut) : VALUES.slice(cut))));
  const found = subtracted ? mathematics.subtractReleases(VALUES, first(), second()) : null;
  const between = (at) => found && at >= found.from && at < found.to;
  const tell = (at) => (between(at) ? found.mean.toFixed(2) : "");
  fillTable("rows", NAMES.map((name, at) => [name, means[0][at].toFixed(2), means[1][at].toFixed(2), tell(at)]), (_, at) => (between(at) ? "marked" : ""));
  const k = Math.min(...[first(), second()].map((cut) => Math.min(cut, 7 - cut)));
  const safe = `The smallest group has ${words(k)}: ${k >= 3 ? "each release is 3-anonymous." : "not 3-anonymous."}`;
  if (!subtracted) return say("told", safe);
  if (!found) return say("told", `${safe} Both releases are the same: nothing follows.`);
  const count = found.to - found.from;
  return say("told", count === 1 ? `${safe} Together they give away ${NAMES[found.from]}: ${found.mean.toFixed(2)}.`
    : `${safe} Together they give the mean of ${count} people: ${found.mean.toFixed(2)}.`);
}
onClick("subtract", () => show(true));
show(false);
