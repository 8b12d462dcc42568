const key = location.hash.slice(1);
async function call(path, body) {
  const headers = { "X-Class-Key": key, "Content-Type": "application/json" };
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}
let shown = "";
function show(found) {
  const state = JSON.stringify(found);
  if (state === shown) return;
  shown = state;
  say("join", found.join);
  say("phones", `${found.phones} phones have answered in this class so far.`);
  if (!found.number) return say("told", "No round was opened yet.");
  say("told", `Round ${found.number}, ${found.is_open ? "open" : "closed"}: ${found.question} ${found.answers} answers, ${found.yes} of them yes.`);
  if (!found.answers) {
    say("estimate", "");
    return eraseChart("chart");
  }
  const { share, low, high } = mathematics.estimateShare(mathematics.DESIGNS[found.design], found.yes, found.answers);
  const inside = (value) => Math.min(1, Math.max(0, value));
  say("estimate", `about ${percent(inside(share))}`);
  return drawChart("chart", {
    alt: `${percent(found.yes / found.answers)} said yes; the true share is about ${percent(inside(share))}, between ${percent(inside(low))} and ${percent(inside(high))}`,
    most: 1, form: (value) => percent(value),
    bars: [{ label: "Phones said yes", value: found.yes / found.answers, color: 4 },
      { label: "True share, estimated (95%)", value: inside(share), low: inside(low), high: inside(high), color: 1 }],
  });
}
async function look() {
  try {
    show(await call("/teach/round"));
  } catch (failure) {
    say("told", `${failure.message} Open this page by the address that the terminal shows.`);
  }
}
const act = (path, body) => async () => {
  try {
    await call(path, body());
    await look();
  } catch (failure) {
    say("told", failure.message);
  }
};
onClick("open", act("/teach/open", () => ({ question: find("question").value, design: find("design").value })));
onClick("close", act("/teach/close", () => ({})));
async function repeat() {
  await look();
  setTimeout(repeat, 1000);
}
repeat();
