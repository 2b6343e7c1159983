// The policy editor: CodeMirror in front of the text area, which stays the form's field. The server judges the text.

import { completions, help } from "./policy_words.js";

const area = document.getElementById("text");
const form = area.form;
const box = document.getElementById("editor");
const problems = document.getElementById("problems");

let view = null; // CodeMirror; without it the text area itself is edited
let saved = area.value;
let leaving = false;

const phrases = JSON.parse(box.dataset.phrases);
const [cm, words] = await Promise.all([
  import(box.dataset.module),
  fetch(box.dataset.words, { headers: { Accept: "application/json" } }).then((found) => (found.ok ? found.json() : null)),
]).catch(() => [null, null]); // the text area stays
if (cm) view = edit(cm, words);

function edit({ EditorState, EditorView, HighlightStyle, tags, ...cm }, words) {
  const colours = HighlightStyle.define([
    { tag: [tags.propertyName, tags.definition(tags.propertyName)], class: "yaml-key" },
    { tag: tags.string, class: "yaml-string" },
    { tag: [tags.content, tags.number, tags.bool, tags.attributeValue], class: "yaml-value" },
    { tag: tags.comment, class: "yaml-comment" },
    { tag: [tags.invalid], class: "yaml-wrong" },
  ]);
  const made = new EditorView({
    state: EditorState.create({
      doc: area.value,
      extensions: [
        cm.lineNumbers(),
        cm.lintGutter(),
        cm.highlightActiveLineGutter(),
        cm.highlightSpecialChars(),
        cm.history(),
        cm.drawSelection(),
        cm.indentOnInput(),
        cm.bracketMatching(),
        cm.highlightActiveLine(),
        cm.indentUnit.of("  "),
        cm.yaml(),
        cm.syntaxHighlighting(colours),
        cm.search({ top: true }),
        cm.autocompletion({ override: words ? [(context) => completions(context, words)] : [], icons: false }),
        words ? cm.hoverTooltip((made, at) => explained(made, at, words)) : [],
        cm.keymap.of([
          { key: "Tab", run: (made) => cm.acceptCompletion(made) || cm.indentMore(made), shift: cm.indentLess },
          ...cm.completionKeymap,
          { key: "Enter", run: newLine },
          ...cm.lintKeymap,
          ...cm.searchKeymap,
          ...cm.historyKeymap,
          ...cm.defaultKeymap,
        ]),
        EditorState.phrases.of(phrases),
        EditorState.lineSeparator.of("\n"),
        EditorView.cspNonce.of(box.dataset.nonce),
        EditorView.contentAttributes.of({
          "aria-labelledby": "yaml-title",
          "aria-describedby": "editor-keys",
          spellcheck: "false",
          tabindex: "0",
          autocapitalize: "off",
        }),
        EditorView.domEventHandlers({ beforeinput: replaced }),
        EditorView.updateListener.of((update) => update.docChanged && typed(update.state.doc.toString())),
      ],
    }),
    parent: box,
  });
  area.hidden = true;
  document.getElementById("editor-keys").hidden = false;
  return made;
}

// A new line begins below the key of the line before, also behind the dash of a list, and deeper after a colon.
function newLine(made) {
  const { from } = made.state.selection.main;
  const line = made.state.doc.lineAt(from);
  const before = line.text.slice(0, from - line.from);
  const indent = /^\s*(?:- +)*/.exec(before)[0].length + (/:\s*$/.test(before) ? 2 : 0);
  made.dispatch(made.state.replaceSelection(`\n${" ".repeat(indent)}`), { userEvent: "input", scrollIntoView: true });
  return true;
}

// Where a selection is typed over, Chromium keeps its colour in a style attribute, which the page forbids.
// CodeMirror hears of a new selection only after a task; text that comes before replaces what the page shows selected.
function replaced(event, made) {
  if (event.inputType !== "insertText" || event.isComposing) return false;
  const { main } = made.state.selection;
  const { from, to } = main.empty ? selected(made) : main;
  if (from === to) return false;
  event.preventDefault();
  const insert = made.state.toText(event.data ?? "");
  const selection = { anchor: from + insert.length };
  made.dispatch({ changes: { from, to, insert }, selection, userEvent: "input.type", scrollIntoView: true });
  return true;
}

function selected(made) {
  const shown = document.getSelection();
  const inside = [shown.anchorNode, shown.focusNode].every((node) => made.contentDOM.contains(node));
  if (shown.isCollapsed || !inside) return made.state.selection.main;
  const anchor = made.posAtDOM(shown.anchorNode, shown.anchorOffset);
  const focus = made.posAtDOM(shown.focusNode, shown.focusOffset);
  return { from: Math.min(anchor, focus), to: Math.max(anchor, focus) };
}

function explained(made, at, words) {
  const found = help(made.state.doc, at, words);
  if (!found) return null;
  const dom = document.createElement("div");
  dom.className = "yaml-help";
  for (const [index, line] of found.lines.entries()) {
    const part = document.createElement(index ? "p" : "strong");
    part.textContent = line;
    dom.append(part);
  }
  return { pos: found.from, end: found.to, above: true, create: () => ({ dom }) };
}

function typed(text) {
  area.value = text;
  area.dispatchEvent(new Event("input", { bubbles: true })); // htmx has it validated
}

// What the server found, as marks in the margin and under the words.
function mark() {
  if (!view) return;
  const { doc } = view.state;
  const found = [];
  for (const one of problems.querySelectorAll("[data-line]")) {
    if (Number(one.dataset.line) > doc.lines) continue;
    const line = doc.line(Number(one.dataset.line));
    const from = Math.min(line.from + Math.max(Number(one.dataset.column ?? 1) - 1, 0), line.to);
    found.push({
      from,
      to: line.to,
      severity: "warning" in one.dataset ? "warning" : "error",
      message: one.querySelector("p").textContent,
    });
  }
  found.sort((one, other) => one.from - other.from);
  view.dispatch(cm.setDiagnostics(view.state, found));
}

// A text from the server replaces only what differs, so that it can be undone and the place on the page stays.
function replace(text) {
  if (!view) {
    area.value = text;
    typed(text);
    return;
  }
  const old = view.state.doc.toString();
  let start = 0;
  while (start < old.length && old[start] === text[start]) start += 1;
  let end = 0;
  const most = Math.min(old.length, text.length) - start;
  while (end < most && old[old.length - 1 - end] === text[text.length - 1 - end]) end += 1;
  const changes = { from: start, to: old.length - end, insert: text.slice(start, text.length - end) };
  view.dispatch({ changes, selection: { anchor: start }, scrollIntoView: true });
}

function goTo(number, column) {
  if (view) {
    const line = view.state.doc.line(Math.min(number, view.state.doc.lines));
    const at = Math.min(line.from + column - 1, line.to);
    view.dispatch({ selection: { anchor: at, head: line.to }, scrollIntoView: true });
    view.focus();
    return;
  }
  const before = area.value.split("\n").slice(0, number - 1);
  const start = before.reduce((sum, line) => sum + line.length + 1, 0) + column - 1;
  area.focus();
  area.setSelectionRange(start, start);
}

problems.addEventListener("click", (event) => {
  const one = event.target.closest("button")?.closest("[data-line]");
  if (one) goTo(Number(one.dataset.line), Number(one.dataset.column));
});

// The form of a rule follows the text, unless somebody is filling it in.
const rule = document.getElementById("rule-form");
let filled = false;
let written = false; // the text comes from the form, which says so already
rule?.addEventListener("input", (event) => (filled = event.target.id !== "rule-chosen" || filled));
document.getElementById("rule-card")?.addEventListener("toggle", follow);
function follow() {
  if (filled || !document.getElementById("rule-card")?.open) return;
  htmx.ajax("POST", rule.dataset.rule, { source: rule, target: rule });
}

// What somebody filled in meanwhile stays.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (filled && detail.requestConfig.elt === rule) detail.shouldSwap = false;
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target === problems) {
    mark();
    if (!written) follow();
    written = false;
  }
  if (event.detail.target !== rule) return;
  filled = Boolean(rule.querySelector("[role=alert]"));
  const text = document.getElementById("rule-text");
  if (text) {
    written = true;
    replace(text.value);
  }
  text?.remove();
});

// A count of changed decisions is about the text that it was made for, so another text is counted again.
let recount = 0;
area.addEventListener("input", () => {
  const effect = document.getElementById("effect");
  if (!effect?.querySelector("[name=counted]")) return;
  effect.querySelectorAll(":scope > :not(input)").forEach((one) => one.remove());
  clearTimeout(recount);
  recount = setTimeout(() => htmx.trigger(effect, "recount"), 2000);
});

// Enter in a field does what the nearest button says, not what the first one of the page says.
form.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
  event.preventDefault();
  event.target.closest("section, details").querySelector("button[type=submit]")?.click();
});

// Nobody loses a text: leaving the page asks, publishing and discarding do not.
form.addEventListener("submit", () => (leaving = true));
document.addEventListener("click", (event) => (leaving = event.target.closest("[data-discards]") ? true : leaving));
addEventListener("pageshow", () => (leaving = false));
addEventListener("beforeunload", (event) => {
  if (!leaving && area.value !== saved) event.preventDefault();
});
if (box.dataset.unsaved !== undefined) saved = null; // a text that the server refused, or a changed rule

mark();
