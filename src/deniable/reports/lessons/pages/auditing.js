const NAMES = ["Ann", "Bo", "Cy", "Dee", "Ed"];
const PAY = [51000, 64500, 70250, 48000, 59900];
let log = [];
find("people").append(...NAMES.map((name) => {
  const box = make("input", { type: "checkbox", value: name });
  return make("label", {}, box, name);
}));
const boxes = [...find("people").querySelectorAll("input")];
const nameAll = (row) => NAMES.filter((_, at) => row[at]).join(", ");

function ask() {
  const row = boxes.map((box) => (box.checked ? 1 : 0));
  if (!row.includes(1)) return say("told", "Choose at least one person.");
  const asked = log.filter((entry) => entry.answered).map((entry) => entry.row);
  const found = mathematics.findDetermined([...asked, row], NAMES.length);
  const refused = find("auditor").checked && found.length > 0;
  log.push({ row, answered: !refused });
  show();
  if (refused) return say("told", `Refused: with the earlier answers, this one would betray ${found.map((at) => NAMES[at]).join(", ")}. The salaries were not looked at.`);
  return say("told", found.length ? `Betrayed: ${found.map((at) => `${NAMES[at]} earns ${PAY[at].toLocaleString("en")}`).join("; ")}.`
    : "Answered. Nobody's salary follows from the answers so far.");
}
function show() {
  const answer = ({ row, answered }) => (answered ? mathematics.sum(PAY.filter((_, at) => row[at])).toLocaleString("en") : "refused");
  fillTable("log", log.length ? log.map((entry) => [nameAll(entry.row), answer(entry)]) : [["nothing yet", "–"]]);
}
function clear() {
  log = [];
  say("told", "Choose people, and ask.");
  show();
}
onClick("ask", ask);
onClick("clear", clear);
onChange("auditor", clear);
clear();
