// The survey page: answers stay in this page; responses are drawn here, shown, and only they are sent.

import { FORMAT, Memory, respond } from "/sdk/client.mjs";
import { answered, said } from "/static/wording.mjs";

const element = (id) => document.getElementById(id);
const survey = await (await fetch("/survey.json")).json();
const storage = (() => {
  try {
    window.localStorage.setItem("deniable-probe", "1");
    window.localStorage.removeItem("deniable-probe");
    return window.localStorage;
  } catch {
    return null; // private windows may refuse; the memory then lasts as long as the page
  }
})();
// The memory belongs to the survey's name: it outlives changes of the questions, so that none of them resets the limits.
const name = survey.survey.replace(/-[0-9a-f]{12}$/, "");
const memory = new Memory(storage, `deniable ${name}`, survey.most_answers, survey.allowance);
let ticket = location.hash.slice(1);
let responses = {};
let draft = memory.draft();
if (ticket) history.replaceState(null, "", location.pathname); // an invitation does not linger in the address bar

const fields = new Map(survey.questions.map((question) =>
  [question.name, document.querySelector(`fieldset[data-question="${CSS.escape(question.name)}"]`)]));

for (const range of document.querySelectorAll("input[type=range]")) {
  const holder = range.parentElement;
  const question = survey.questions.find(({ name }) => name === range.closest("fieldset").dataset.question);
  holder.classList.add("idle");
  const show = () => {
    holder.classList.remove("idle");
    holder.querySelector("output").value = answered(question, Number(range.value));
    ready();
  };
  range.addEventListener("input", show);
  range.addEventListener("click", show);
}

/** The answer given to a question, or undefined if it was skipped. */
function answerTo(question) {
  const field = fields.get(question.name);
  if (question.type === "number") {
    return field.querySelector(".idle") ? undefined : Number(field.querySelector("input").value);
  }
  if (question.type === "word") return field.querySelector("input").value.trim() || undefined;
  const chosen = [...field.querySelectorAll("input:checked")].map((input) => input.value);
  if (question.type === "several") return field.dataset.touched ? chosen : undefined;
  return chosen[0];
}

function given() {
  return survey.questions.map((question) => [question, answerTo(question)]).filter(([, answer]) => answer !== undefined);
}

function ready() {
  const count = given().length;
  document.querySelector("#questions button").disabled = count === 0;
  element("hint").textContent = count ? `${count} of ${survey.questions.length} answered` : "";
}

function show(id) {
  for (const part of ["promise", "questions", "review", "thanks"]) {
    element(part).hidden = part !== id && !(id === "questions" && part === "promise");
  }
  if (id !== "questions") element(id).focus();
  window.scrollTo(0, 0);
}

function line(question, answer, told) {
  const item = document.createElement("li");
  const heading = Object.assign(document.createElement("h3"), { textContent: question.ask });
  const pair = Object.assign(document.createElement("div"), { className: "pair" });
  for (const [kind, what, text] of [
    ["stays", "Stays here", answered(question, answer)],
    ["leaves", "Would be sent", said(question, told)],
  ]) {
    const side = Object.assign(document.createElement("div"), { className: kind });
    side.append(
      Object.assign(document.createElement("span"), { className: "what", textContent: what }),
      Object.assign(document.createElement("strong"), { textContent: text }),
    );
    pair.append(side);
  }
  item.append(heading, pair);
  return item;
}

function message() {
  return { format: FORMAT, survey: survey.survey, ticket, responses };
}

element("questions").addEventListener("change", (event) => {
  event.target.closest("fieldset").dataset.touched = "yes";
  ready();
});
element("questions").addEventListener("input", ready);
element("questions").addEventListener("submit", (event) => {
  event.preventDefault();
  responses = {};
  draft = memory.draft();
  const lines = [];
  let epsilon = 0;
  try {
    for (const [question, answer] of given()) {
      responses[question.name] = respond(question, answer, draft, survey.period);
      lines.push(line(question, answer, responses[question.name]));
      epsilon += question.epsilon;
    }
  } catch (refused) {
    element("hint").textContent = refused.message;
    return;
  }
  element("pairs").replaceChildren(...lines);
  element("factor").textContent = Number(Math.exp(epsilon).toPrecision(2)).toLocaleString("en");
  element("message").textContent = JSON.stringify(message(), null, 1);
  element("trouble").textContent = "";
  show("review");
});

element("back").addEventListener("click", () => show("questions"));
element("forget").addEventListener("click", () => {
  memory.forget();
  element("forgotten").textContent = "Forgotten. If you answer again, new scrambled answers are drawn.";
});
element("send").addEventListener("click", async () => {
  const button = element("send");
  button.disabled = true;
  try {
    if (!ticket) ticket = await freshTicket();
    memory.adopt(draft); // before it leaves: a lost acknowledgement must not lead to a second draw
    const answer = await fetch("/responses", { method: "POST", body: JSON.stringify(message()) });
    if (answer.status === 409) element("receipt").textContent = "A response with this ticket was stored before; it counts once.";
    else if (!answer.ok) throw new Error((await answer.json()).remedy ?? "");
    show("thanks");
  } catch (failure) {
    element("trouble").textContent = `It could not be sent. ${failure.message} Nothing was lost: try again.`;
  }
  button.disabled = false;
});

async function freshTicket() {
  const answer = await fetch("/ticket", { method: "POST" });
  if (!answer.ok) throw new Error((await answer.json()).remedy);
  return (await answer.json()).ticket;
}

ready();
document.documentElement.dataset.ready = "yes";
