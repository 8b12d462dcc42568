// The analysts' page: an editor for each question, its price as one types, the curve of its error, and its answer.
// Questions are kept in the browser's tab until their asker leaves; answers are kept by the server, for their asker alone.
import { Curve } from "./curve.js";
import { openEditor } from "./editor.js";
import { improve, reveal } from "./table.js";

const EMPTY = "Write a question, such as SELECT COUNT(*) FROM a table. Its price is shown as you type.";
const PAUSE = 300;  // milliseconds without a key before a question is priced
const KEYWORDS = ["SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "ON", "USING", "AS",
  "AND", "OR", "NOT", "IN", "BETWEEN", "IS NULL", "CASE WHEN", "WITH", "DISTINCT", "UNION ALL", "ROLLUP"];
const cells = document.getElementById("cells");
const permalink = document.getElementById("permalink");
let words = { tables: [], functions: [] };
const KEPT = `questions of ${document.querySelector(".who").textContent} at ${location.pathname}${location.search}`;
let current = null, count = cells.children.length;

class Cell {
  constructor(section) {
    this.section = section;
    this.form = section.querySelector("form");
    this.area = section.querySelector("textarea");
    this.answer = section.querySelector(".answer");
    this.release = section.dataset.release ?? "";
    this.curve = new Curve(section.querySelector(".curve"), (epsilon) => this.choose(epsilon));
    this.editor = openEditor(this.area, { language: "sql", label: "Question in SQL", complete,
      change: () => this.soon(), run: () => this.ask(), empty: EMPTY });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (event.submitter?.value === "explain") this.explain();
      else this.ask();
    });
    this.form.addEventListener("input", () => this.soon());
    this.form.addEventListener("focusin", () => { current = this; });
    this.find(".cancel").addEventListener("click", () => this.cancel());
    this.find(".remove").addEventListener("click", () => this.remove());
    this.soon(0);
  }

  find(selector) { return this.section.querySelector(selector); }
  field(name) { return this.form.elements.namedItem(name); }

  question() {
    const given = { sql: this.editor.read(), epsilon: this.field("epsilon").value.trim() || null, purpose: this.field("purpose").value };
    const delta = this.field("delta").value.trim();
    return delta ? { ...given, delta } : given;
  }

  state() {
    const fields = ["epsilon", "delta", "purpose"].map((name) => [name, this.field(name).value]);
    return { sql: this.editor.read(), ...Object.fromEntries(fields), release: this.release };
  }

  choose(epsilon) {
    this.field("epsilon").value = String(epsilon);
    this.soon();
  }

  soon(wait = PAUSE) {
    clearTimeout(this.timer);
    link();
    this.timer = setTimeout(() => this.price(), wait);
  }

  // A newer text takes the place of an older one, whose request is given up.
  async price() {
    this.pending?.abort();
    const pending = (this.pending = new AbortController());
    const asked = this.question();
    if (!asked.sql.trim()) return this.tell({});
    try {
      const told = await send("/ask/preview", asked, { signal: pending.signal });
      if (pending.signal.aborted) return;
      this.tell(told);
      this.curve.show(Number(asked.epsilon));
      await this.trace(asked, told, pending.signal);
    } catch (failure) {
      if (failure.name !== "AbortError") this.tell({ mistake: failure.refusal ?? { message: "The server does not answer." } });
    }
  }

  async trace(asked, told, signal) {
    const key = JSON.stringify([asked.sql, asked.delta, asked.purpose]);
    if (told.mistake || key === this.traced) return;
    const { points } = await send("/ask/curve", { ...asked, epsilon: null }, { signal });
    this.traced = key;
    this.curve.draw(points, Number(asked.epsilon));
  }

  tell({ mistake, in_words: sentence, errors = [], takes, left }) {
    const said = this.find(".mistake");
    const words = mistake ? say(mistake) : "";
    said.hidden = !mistake || words === this.refused;  // what was refused stands under the button already
    said.textContent = said.hidden ? "" : words;
    const wrong = mistake?.remedy && this.mend(mistake);
    if (wrong && !said.hidden) said.append(" ", wrong);
    this.editor.mark(mistake?.line ? [{ line: mistake.line, column: mistake.column, message: mistake.happened }] : []);
    this.find(".preview").hidden = Boolean(mistake) || !sentence;
    if (mistake || !sentence) return;
    const price = this.find(".price");
    price.textContent = sentence;
    price.classList.toggle("over", takes === null && left !== null);
    this.find(".errors").replaceChildren(...errors.map(({ aggregate, words: reach }) => item(aggregate, reach)));
  }

  // A button that puts in the word that was perhaps meant.
  mend({ happened, remedy }) {
    const [meant, wrong] = [/^Did you mean '([^']+)'/.exec(remedy)?.[1], /'([^']+)'/.exec(happened)?.[1]];
    if (!meant || !wrong || !this.editor.read().includes(wrong)) return null;
    const button = element("button", `Use '${meant}'`);
    button.type = "button";
    button.className = "plain";
    button.addEventListener("click", () => this.editor.replace(wrong, /^[A-Za-z_]\w*$/.test(meant) ? meant : `"${meant}"`));
    return button;
  }

  async ask() {
    await this.show("/ask/answer");
  }

  async explain() { await this.show("/ask/plan"); }

  // What an answer or a plan is on the page; the answer that it replaces is no longer kept.
  async show(path) {
    const request = `page-${crypto.randomUUID()}`;
    this.request = request;
    this.busy(true);
    try {
      const told = await send(path, this.question(), { headers: { "x-request-id": request } });
      this.answer.replaceChildren(...parse(told.html));
      this.release = told.release ?? "";
      if (told.balance) document.getElementById("balance").replaceChildren(...parse(told.balance));
      improve(this.answer);
      this.refused = null;
    } catch (failure) {
      this.refuse(failure.refusal ?? { message: "The server does not answer. Whether it was charged is not known: ask again." });
    } finally {
      this.busy(false);
      this.soon(0);
    }
  }

  // An answer that stood here before its asker went to another page; no question is asked for it.
  async recall() {
    if (!this.release) return;
    const answer = await fetch(`/ask/kept?${new URLSearchParams({ release: this.release })}`).catch(() => null);
    const told = answer?.ok ? await answer.json() : { html: "<p class=note>The answer is no longer kept on this page. Ask again: the stored answer of an equal question is free.</p>" };
    this.answer.replaceChildren(...parse(told.html));
    improve(this.answer);
  }

  refuse(refusal) {
    this.release = "";
    const box = document.createElement("div");
    box.className = "refusal";
    box.setAttribute("role", "alert");
    if (refusal.error === "budget") box.append(element("strong", "The budget does not allow this. "));
    this.refused = say(refusal);
    box.append(this.refused);
    this.answer.replaceChildren(box);
    if (refusal.line) this.editor.mark([{ ...refusal, message: refusal.happened }]);
  }

  busy(on) {
    for (const name of [".cancel", "progress"]) this.find(name).hidden = !on;
    this.find("button[value=ask]").disabled = on;
    this.answer.setAttribute("aria-busy", String(on));
  }

  cancel() { return send("/ask/cancel", {}, { headers: { "x-request-id": this.request } }).catch(() => {}); }

  remove() {
    all.delete(this);
    this.section.remove();
    count -= 1;
    arrange();
    document.getElementById("add").focus();
  }
}

// The words of a refusal; the place in the question is shown there.
function say(refusal) {
  const words = refusal.message.replace(/^query:\d+(:\d+)?: /, "");
  return reveal(words.charAt(0).toUpperCase() + words.slice(1));
}

function item(aggregate, reach) {
  const made = document.createElement("li");
  made.append(element("code", aggregate), " ", reach);
  return made;
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = reveal(text);
  return made;
}

// Text of our own server as nodes: scripts in it would not run, and it holds none.
function parse(text) {
  return new DOMParser().parseFromString(text, "text/html").body.childNodes;
}

async function send(path, body, { signal, headers = {} } = {}) {
  const answer = await fetch(path, { method: "POST", signal, body: JSON.stringify(body),
    headers: { "content-type": "application/json", ...headers } });
  const told = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(told.message), { refusal: told });
  return told;
}

// What can stand where the cursor is: categories inside quotes, else columns, tables, functions and keywords.
function complete(context) {
  const columns = words.tables.flatMap((table) => table.columns.map((column) => ({ ...column, table: table.table })));
  const open = findQuote(context.state.sliceDoc(0, context.pos));
  if (open?.mark === "'") return { from: open.at + 1, options: categories(context, columns, open.at), validFor: /^[^']*$/ };
  const names = [
    ...columns.map((each) => ({ label: each.column, apply: each.insert, type: "property", detail: `${each.type} of ${each.table}`, boost: 3 })),
    ...words.tables.map((each) => ({ label: each.table, apply: each.insert, type: "class", detail: "table", boost: 2 })),
  ];
  if (open) {  // a name whose quotes are open: the completion closes them
    return { from: open.at, options: names.map((each) => ({ ...each, label: quote(each.label), apply: quote(each.label) })), validFor: /^"[^"]*$/ };
  }
  const word = context.matchBefore(/\w+$/);
  if (!word && !context.explicit) return null;
  const options = [
    ...names,
    ...words.functions.map(({ form, meaning }) => ({ label: form, type: "function", detail: meaning === "of a row" ? "" : meaning.split(";")[0] })),
    ...KEYWORDS.map((label) => ({ label, type: "keyword", boost: -1 })),
  ];
  return { from: word ? word.from : context.pos, options, validFor: /^\w*$/ };
}

// The quote that is open where a text ends: which one it is, and where it stands.
function findQuote(text) {
  let open = null;
  for (let at = 0; at < text.length; at += 1) {
    const mark = text[at];
    if (open) open = mark === open.mark ? null : open;
    else if (text.startsWith("--", at)) at = (text.indexOf("\n", at) + 1 || text.length) - 1;
    else if (mark === "'" || mark === '"') open = { mark, at };
  }
  return open;
}

function quote(name) { return `"${name.replaceAll('"', '""')}"`; }

function categories(context, columns, at) {
  const before = context.state.sliceDoc(Math.max(0, at - 300), at);
  const named = /("(?:[^"]|"")*"|\w+)[\s)]*(?:=|<>|\bin\b\s*\([^)]*|\blike\b)\s*$/i.exec(before)?.[1].toLowerCase();
  const fitting = columns.filter((each) => each.categories && (!named || [each.insert, quote(each.column)].some((name) => name.toLowerCase() === named)));
  return fitting.flatMap((each) => each.categories.map((label) => ({ label: String(label), apply: String(label).replaceAll("'", "''"), detail: each.column })));
}

function link() {
  const query = new URLSearchParams();
  for (const cell of all) {
    query.append("sql", cell.editor.read());
    for (const name of ["epsilon", "delta", "purpose"]) query.append(name, cell.field(name).value);
  }
  permalink.href = `/?${query}`;
  keep();
}

// The questions of this page, for when their asker comes back; nothing that was answered.
function keep() {
  if (location.pathname !== "/") return;
  try {
    sessionStorage.setItem(KEPT, JSON.stringify([...all].map((cell) => cell.state())));
  } catch {
    // There is no room: the page works on, and keeps nothing.
  }
}

function restore() {
  let kept = null;
  try {
    kept = location.pathname === "/" && JSON.parse(sessionStorage.getItem(KEPT));
  } catch {
    // It is not ours, or may not be read: the page begins as it is.
  }
  (kept || []).forEach((each, place) => {
    const section = cells.children[place] ?? build();
    section.dataset.release = each.release ?? "";
    for (const field of section.querySelector("form").elements) {
      const value = each[field.name];
      if (typeof value === "string" && (!field.options || [...field.options].some((one) => one.value === value))) field.value = value;
    }
  });
}

function arrange() {
  [...all].forEach((cell, place) => {
    cell.section.setAttribute("aria-label", `Question ${place + 1}`);
    cell.find(".remove").hidden = all.size < 2;
  });
  link();
}

function build() {
  count += 1;
  const section = document.getElementById("blank").content.cloneNode(true).querySelector(".cell");
  for (const each of section.querySelectorAll("[id]")) each.id = each.id.replace("-new", `-${count}`);
  for (const each of section.querySelectorAll("[for]")) each.htmlFor = each.htmlFor.replace("-new", `-${count}`);
  cells.append(section);
  return section;
}

function add() {
  const made = new Cell(build());
  all.add(made);
  arrange();
  made.editor.focus();
}

const all = new Set();
restore();
for (const section of [...cells.children]) all.add(new Cell(section));
arrange();
for (const cell of all) cell.recall();
document.getElementById("add").hidden = permalink.hidden = false;
document.getElementById("add").addEventListener("click", add);
for (const name of document.querySelectorAll("[data-insert]")) {
  const button = element("button", name.textContent);
  button.type = "button";
  button.className = "insert";
  button.title = "Put it into the question";
  button.addEventListener("click", () => (current ?? [...all].at(-1)).editor.insert(name.dataset.insert));
  name.replaceChildren(button);
}
const purpose = new URLSearchParams({ purpose: [...all][0].field("purpose").value });
fetch(`/ask/words?${purpose}`).then((answer) => answer.json()).then((told) => { if (told.tables) words = told; }).catch(() => {});
document.documentElement.dataset.ready = "yes";
