// The survey page: answers stay in this page; responses are drawn here, shown, and only they are sent.

import {
  ALLOWANCE, FORMAT, Memory, Refused, blindTicket, checkStated, checkSurvey, finishTicket, openTicket, pin,
  randomizesUnanswered, respond,
} from "/sdk/client.mjs";
import { answered, said } from "/static/wording.mjs";

const element = (id) => document.getElementById(id);
const described = new Uint8Array(await (await fetch("/survey.json")).arrayBuffer());
const survey = JSON.parse(new TextDecoder().decode(described));
const [pinned, invitation] = location.hash.slice(1).split(".");
const storage = (() => {
  try {
    window.localStorage.setItem("deniable-probe", "1");
    window.localStorage.removeItem("deniable-probe");
    return window.localStorage;
  } catch {
    return null; // private windows may refuse; the memory then lasts as long as the page
  }
})();
// One memory for all surveys of this address, under a name and with months of the device's own: no server resets them.
const memory = new Memory(storage);
let ticket = "";
let responses = {};
let draft = memory.draft();
if (invitation) history.replaceState(null, "", `${location.pathname}#${pinned}`); // it does not linger in the address bar

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

/** What is responded to: every answer, and where that is hidden the lack of one. */
function responded() {
  return survey.questions.map((question) => [question, answerTo(question)])
    .filter(([question, answer]) => answer !== undefined || randomizesUnanswered(question));
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
    for (const [question, answer] of responded()) {
      responses[question.name] = respond(question, answer, draft, undefined, survey.most_answers);
      lines.push(line(question, answer, responses[question.name]));
      epsilon += checkStated(question);
    }
  } catch (refused) {
    element("hint").textContent = refused.message;
    return;
  }
  element("pairs").replaceChildren(...lines);
  element("factor").textContent = Number(Math.exp(epsilon).toPrecision(2)).toLocaleString("en");
  element("epsilon").textContent = epsilon.toPrecision(3);
  element("allowance").textContent = ALLOWANCE;
  const skipped = survey.questions.length - lines.length;
  element("skipped").textContent = skipped ? `${skipped} skipped: whoever reads the responses sees which.` : "";
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
    ticket ||= survey.key ? await takeTicket() : openTicket();
    memory.adopt(draft); // before it leaves: a lost acknowledgement must not lead to a second draw
    const answer = await fetch("/responses", { method: "POST", body: JSON.stringify(message()) });
    if (answer.status === 409) element("receipt").textContent = "A response with this ticket was stored before; it counts once.";
    else if (!answer.ok) throw new Error((await answer.json()).remedy ?? "");
    if (invitation && survey.key) memory.forgetTicket(invitation, survey.key);
    show("thanks");
  } catch (failure) {
    element("trouble").textContent = `It could not be sent. ${failure.message} Nothing was lost: try again.`;
  }
  button.disabled = false;
});

/** A ticket for the invitation: the server signs it without seeing it, and cannot know it again. */
async function takeTicket() {
  if (!invitation) throw new Refused("Open the link of your invitation.");
  const body = { survey: survey.survey, invitation, blinded: blindTicket(survey.key, invitation, memory) };
  const answer = await fetch("/ticket", { method: "POST", body: JSON.stringify(body) });
  if (!answer.ok) throw new Error((await answer.json()).remedy);
  return finishTicket(survey.key, invitation, memory, (await answer.json()).signed);
}

/** Take the ticket when the page opens, long before the answers leave: what comes at another time joins less easily. */
async function prepare() {
  if (pinned && pin(described) !== pinned) throw new Refused("This is another survey than the one your link was made for.");
  if (invitation && !pinned) throw new Refused("Your link does not say for which survey it is: ask for the whole link.");
  checkSurvey(survey);
  if (invitation) ticket = await takeTicket();
}

try {
  await prepare();
} catch (refused) {
  if (refused instanceof Refused) {
    for (const control of document.querySelectorAll("#questions input")) control.disabled = true;
  }
  element("refusal").textContent = refused.message;
}
ready();
document.documentElement.dataset.ready = "yes";
