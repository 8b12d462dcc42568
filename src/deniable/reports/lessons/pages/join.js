const RULES = {
  coins: "Your phone tosses a coin. Tails: it tells your truth. Heads: a second coin answers.",
  envelopes: "Your phone draws one of three envelopes: “say yes”, “say no”, “tell the truth”.",
  die: "Your phone throws a die. 1 to 4: it tells your truth. 5: it says yes. 6: it says no.",
};
let round = { number: 0, is_open: false };
let kept = { told: {}, spent: 0 };
const answered = new Set();

function recall(name) {
  kept = { told: {}, spent: 0 };
  try {
    const found = JSON.parse(localStorage.getItem("deniable-class"));
    if (found && found.class === name) kept = found;
  } catch { /* a phone without storage forgets when the page is closed */ }
  kept.class = name;
}
function remember() {
  try { localStorage.setItem("deniable-class", JSON.stringify(kept)); } catch { /* see above */ }
}
async function send(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}
async function answer(truth) {
  find("answers").hidden = true;
  const question = `${round.design}: ${round.question}`;
  const known = Object.hasOwn(kept.told, question);
  const { told, said } = known ? { told: "You were asked this before: your phone says the same again.", said: kept.told[question] } : mathematics.respond(round.design, truth);
  try {
    kept.ticket ??= (await send("/ticket", {})).ticket;
    if (!known) kept.spent += mathematics.epsilonOf(mathematics.DESIGNS[round.design]);
    kept.told[question] = said;
    remember();
    answered.add(round.number);
    await send("/answer", { ticket: kept.ticket, round: round.number, answer: said ? 1 : 0 });
    say("told", `${told} Your phone sent: ${said ? "YES" : "NO"}.`);
  } catch (failure) {
    say("told", `Nothing more was sent. ${failure.message}`);
  }
  say("spent", `You have told epsilon ${kept.spent.toFixed(2)} in this class so far.`);
}
async function look() {
  try {
    const found = await (await fetch("/round")).json();
    if (kept.class !== found.class) recall(found.class);
    if (found.number !== round.number || found.is_open !== round.is_open) show(found);
  } catch {
    say("question", "The teacher's computer does not answer. Stay in the same network; this page tries again.");
    round = { number: -1 };
  }
  setTimeout(look, 1500);
}
function show(found) {
  if (found.number !== round.number) say("told", "");
  round = found;
  say("question", found.is_open ? found.question : "Please wait for the question.");
  say("rule", found.is_open ? RULES[found.design] : "");
  find("answers").hidden = !found.is_open || answered.has(found.number);
}
onClick("yes", () => answer(true));
onClick("no", () => answer(false));
look();
