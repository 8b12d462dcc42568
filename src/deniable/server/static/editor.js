// An editor in place of a text area: highlighting, completion, and mistakes underlined where they are.
import {
  EditorState, EditorView, HighlightStyle, PostgreSQL, autocompletion, bracketMatching, completionKeymap, defaultKeymap,
  history, historyKeymap, keymap, lineNumbers, placeholder, setDiagnostics, sql, syntaxHighlighting, tags, yaml,
} from "./codemirror.min.js";

const colors = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword], color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--text-value)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--number-value)" },
  { tag: [tags.comment], color: "var(--soft)", fontStyle: "italic" },
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "var(--accent)" },
]);

const looks = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--paper)", border: "1px solid var(--line)", borderRadius: "4px", fontSize: "15px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-content": { fontFamily: "ui-monospace, SFMono-Regular, Menlo, monospace", padding: "8px 0", caretColor: "var(--ink)" },
  ".cm-scroller": { minHeight: "5.5rem" },
  ".cm-gutters": { backgroundColor: "var(--ground)", color: "var(--soft)", border: "none" },
  ".cm-tooltip": { backgroundColor: "var(--paper)", color: "var(--ink)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-placeholder": { color: "var(--soft)" },
  ".cm-completionDetail": { fontStyle: "normal", color: "inherit", opacity: "0.85" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--warn)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--warn)", textUnderlineOffset: "3px" },
});

// The editor stands in a shadow root: its styles are sheets of that root, which a strict policy of the page allows.
export function openEditor(area, { language, label, complete, change, run, empty }) {
  const host = document.createElement("div");
  host.className = "editor";
  area.before(host);
  area.hidden = true;
  const root = host.attachShadow({ mode: "open" });
  const paper = area.form?.querySelector(".printed");  // an editor draws the lines in sight alone: this is printed
  let touched = false;
  const keys = run ? [{ key: "Mod-Enter", run: () => (run(), true) }] : [];
  const view = new EditorView({
    root, parent: root,
    state: EditorState.create({
      doc: area.value,
      extensions: [
        lineNumbers(), history(), bracketMatching(), EditorView.lineWrapping, looks, syntaxHighlighting(colors),
        keymap.of([...keys, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        language === "yaml" ? yaml() : sql({ dialect: PostgreSQL }),
        complete ? autocompletion({ override: [complete], icons: false, filterStrict: true }) : [],
        empty ? placeholder(empty) : [],
        EditorView.contentAttributes.of({ "aria-label": label, "aria-multiline": "true", spellcheck: "false" }),
        EditorView.domEventHandlers({ beforeinput: type, focus: () => { touched = true; } }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged) return;
          area.value = update.state.doc.toString();
          if (paper) paper.textContent = area.value;
          change?.();
        }),
      ],
    }),
  });
  const read = () => view.state.doc.toString();
  const write = (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
  // A browser fills fields in again after the scripts have run, when somebody comes back: the editor shows that text.
  addEventListener("pageshow", () => {
    if (area.value !== read()) write(area.value);
    change?.();
  });
  area.form?.addEventListener("formdata", (event) => event.formData.set(area.name, read()));  // what is shown is sent
  const caption = document.querySelector(`label[for="${area.id}"]`);
  caption?.addEventListener("click", () => view.focus());
  return {
    mark: (mistakes) => view.dispatch(setDiagnostics(view.state, mistakes.map((each) => place(view.state.doc, each)))),
    insert: (text) => {
      if (!touched) view.dispatch({ selection: { anchor: view.state.doc.length } });  // nobody has chosen a place yet
      const { from } = view.state.selection.main;
      const apart = /[\w"')]/.test(view.state.sliceDoc(from - 1, from)) ? " " : "";
      view.dispatch(view.state.replaceSelection(apart + text));
      view.focus();
    },
    // Another word wherever one stands, not inside a longer one.
    replace: (word, other) => {
      const apart = new RegExp(`(?<![\\w"])${word.replace(/[^\w]/g, "\\$&")}(?![\\w"])`, "gu");
      const changes = [...read().matchAll(apart)].map((each) => ({ from: each.index, to: each.index + word.length, insert: other }));
      view.dispatch({ changes });
      view.focus();
    },
    read,
    write,
    focus: () => view.focus(),
  };
}

// A browser that replaces text by itself keeps its looks in a style attribute, which the policy of the page forbids.
function type(event, view) {
  if (event.inputType !== "insertText" || view.composing || event.data === null) return false;
  view.dispatch({ ...view.state.replaceSelection(event.data), userEvent: "input.type", scrollIntoView: true });
  event.preventDefault();
  return true;
}

// The word at a line and column of a mistake, or the end of the text where that is beyond it.
function place(doc, { line, column, message }) {
  const at = doc.line(Math.min(Math.max(line || 1, 1), doc.lines));
  let from = Math.min(at.from + Math.max((column || 1) - 1, 0), at.to);
  const rest = doc.sliceString(from, at.to);
  const word = /^(\w+|'[^']*'?|"[^"]*"?|\S)/.exec(rest);
  let to = column ? from + (word ? word[0].length : 0) : at.to;
  if (to === from) from = Math.max(at.from, from - 1);
  if (to === from) to = Math.min(doc.length, from + 1);
  return { from, to, severity: "error", message };
}
