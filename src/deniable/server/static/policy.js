// The policy editor: what is typed is checked after a pause, and mistakes are underlined where they are.
import { openEditor } from "./editor.js";
import { reveal } from "./table.js";

const PAUSE = 400;
const area = document.getElementById("text");
const verdict = document.getElementById("verdict");
const summary = document.getElementById("summary");
let timer, pending;

const editor = openEditor(area, { language: "yaml", label: "The whole policy in YAML", change: soon });

function soon() {
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE);
}

async function check() {
  pending?.abort();
  pending = new AbortController();
  const { signal } = pending;
  try {
    const answer = await fetch("/policy/check", { method: "POST", signal, headers: { "content-type": "application/json" },
      body: JSON.stringify({ text: editor.read() }) });
    const told = await answer.json();
    if (!signal.aborted) tell(answer.ok ? told : { mistakes: [told], summary: null });
  } catch (failure) {
    if (failure.name !== "AbortError") verdict.replaceChildren(element("p", "The server does not answer.", "refusal"));
  }
}

function tell({ mistakes, summary: said }) {
  editor.mark(mistakes.filter((each) => each.line));
  if (mistakes.length) {
    const words = mistakes.length === 1 ? "1 mistake" : `${mistakes.length} mistakes`;
    verdict.replaceChildren(element("p", words, "refusal"), list("ol", mistakes.map((each) => (each.line ? `Line ${each.line}: ` : "") + each.message)));
  } else {
    verdict.replaceChildren(element("p", "No mistake.", "good"));
  }
  document.getElementById("accept-box").hidden = !said?.loosened.length;
  summary.replaceChildren(...(said ? [
    ...part("Protects less than what was accepted", said.loosened),
    ...part("Protects little", Object.values(said.doubts)),
    ...part("Perhaps overlooked", said.notes),
    ...part("Who is protected", said.tables.map((each) => `${each.name}: ${each.protects}`)),
  ] : []));
}

function part(title, lines) {
  return lines.length ? [element("h3", title), list("ul", lines)] : [];
}

function list(kind, lines) {
  const made = document.createElement(kind);
  made.append(...lines.map((line) => element("li", line)));
  return made;
}

function element(kind, text, name = "") {
  const made = document.createElement(kind);
  made.textContent = reveal(text);
  if (name) made.className = name;
  return made;
}

editor.mark([]);
check();
document.documentElement.dataset.ready = "yes";
