// What can stand at a place of a policy's text, and what a word means. The place is found by the indents above it.

const INDENT = /^(\s*(?:- +)*)/;
const KEY = /^["']?([A-Za-z][\w.-]*)["']?\s*:/;

// The keys that lead to a place, the outermost first: ["spec", "rules", "actions", "attribute"].
function pathTo(doc, number, indent) {
  const path = [];
  for (let at = number - 1; at > 0 && indent > 0; at -= 1) {
    const text = doc.line(at).text;
    if (!text.trim() || text.trim().startsWith("#")) continue;
    if (/^(---|\.\.\.)/.test(text)) break;
    const dashed = INDENT.exec(text)[1].length;
    const key = KEY.exec(text.slice(dashed));
    const own = key ? dashed : text.length - text.trimStart().length;
    if (own >= indent) continue;
    indent = own;
    if (key) path.unshift(key[1]);
  }
  return path;
}

// The innermost open bracket of a line with the key before it: {errorCode: ["48", → errorCode and [.
function open(before) {
  const stack = [];
  let quote = "";
  for (let at = 0; at < before.length; at += 1) {
    const character = before[at];
    if (quote) {
      if (character === quote) quote = "";
    } else if (character === '"' || character === "'") quote = character;
    else if ("[{".includes(character)) stack.push(at);
    else if ("]}".includes(character)) stack.pop();
  }
  return stack.map((at) => ({
    bracket: before[at],
    key: /([A-Za-z][\w.-]*)\s*:\s*$/.exec(before.slice(0, at))?.[1],
    inside: before.slice(at + 1),
  }));
}

// Where a position is: the keys that contain it, the key whose value it is, and the word so far.
function where(doc, at) {
  const line = doc.lineAt(at);
  const before = line.text.slice(0, at - line.from);
  const dash = INDENT.exec(line.text)[1].length;
  const brackets = open(before);
  const inner = brackets.at(-1);
  const rest = inner ? inner.inside.split(",").at(-1).trimStart() : before.slice(Math.min(dash, before.length));
  const path = pathTo(doc, line.number, dash);
  const first = KEY.exec(line.text.slice(dash))?.[1];
  if (inner) path.push(...brackets.map((one) => one.key).filter(Boolean));
  const value = /^["']?([A-Za-z][\w.-]*)["']?\s*:\s*(.*)$/.exec(rest);
  const listed = (inner?.bracket === "[" || (!inner && /-\s+\S*$/.test(before) && !value)) && path.at(-1);
  return { path, line, first, key: value ? value[1] : null, listed: listed || null, word: value ? value[2] : rest };
}

function contextOf(path) {
  const last = path.at(-1) ?? "";
  if (last === "rules") return "rule";
  return last;
}

// The action that an attribute belongs to: the name nearest above it.
function actionAt(doc, line) {
  for (let at = line.number; at > 0; at -= 1) {
    const name = /\bname:\s*["']?([A-Za-z]+)/.exec(doc.line(at).text);
    if (name) return name[1];
    if (/^\s*actions:/.test(doc.line(at).text)) return "";
  }
  return "";
}

function keysAt(doc, place, words) {
  const context = contextOf(place.path);
  if (context === "attribute") return words.actions[actionAt(doc, place.line)]?.attributes ?? {};
  return words.keys[context] ?? {};
}

function valuesAt(place, words) {
  const key = place.listed ?? place.key;
  if (key === "name" && place.path.includes("actions")) {
    return Object.fromEntries(Object.entries(words.actions).map(([name, action]) => [name, action.help]));
  }
  if (key === "errorCode" || key === "sxid") return codes(words, key === "sxid" ? "sxid" : "xid");
  if (key === "kinds") return words.kinds;
  return words.values[key] ?? null;
}

function codes(words, kind) {
  return Object.fromEntries(Object.entries(words.codes[kind]).map(([code, [title]]) => [code, title]));
}

export function completions(context, words) {
  const { doc } = context.state;
  const place = where(doc, context.pos);
  const word = context.matchBefore(/[\w.<>-]*/);
  if (!context.explicit && word.from === word.to) return null;
  const options = valueOptions(doc, place, word, context.pos, words) ?? keyOptions(doc, place, words);
  return options.length ? { from: word.from, options, validFor: /^[\w.<>-]*$/ } : null;
}

function valueOptions(doc, place, word, at, words) {
  const values = place.listed || place.key ? valuesAt(place, words) : null;
  if (!values) return place.key || place.listed === "errorCode" ? [] : null;
  const numeric = ["errorCode", "sxid"].includes(place.listed ?? place.key) || /^(true|false)$/.test(Object.keys(values)[0]);
  const quote = /["']/.exec(doc.sliceString(word.from - 1, word.from))?.[0];
  const closed = quote && doc.sliceString(at, at + 1) === quote;
  return Object.entries(values).map(([label, detail]) => ({
    label,
    detail,
    type: "value",
    sortText: /^\d+$/.test(label) ? label.padStart(6, "0") : label,
    apply: quote ? (closed ? label : label + quote) : numeric ? `"${label}"` : label,
  }));
}

function keyOptions(doc, place, words) {
  return Object.entries(keysAt(doc, place, words)).map(([label, detail]) => ({
    label,
    detail,
    apply: `${label}: `,
    type: "key",
  }));
}

export function help(doc, at, words) {
  const line = doc.lineAt(at);
  const found = [...line.text.matchAll(/["']?[\w.]+["']?/g)].find(
    (one) => line.from + one.index <= at && at <= line.from + one.index + one[0].length,
  );
  if (!found || line.text.slice(0, found.index).includes("#")) return null;
  const word = found[0].replace(/["']/g, "");
  const from = line.from + found.index;
  const to = from + found[0].length;
  const place = where(doc, from + (found[0] === word ? 0 : 1));
  const lines = meaning(doc, place, word, line.text.slice(found.index + found[0].length).startsWith(":"), words);
  return lines && { from, to, lines };
}

function meaning(doc, place, word, isKey, words) {
  if (isKey) {
    const text = keysAt(doc, place, words)[word];
    return text ? [word, text] : null;
  }
  const key = place.listed ?? place.key;
  const kind = { errorCode: "xid", sxid: "sxid" }[key];
  if (kind && words.codes[kind][word]) {
    const [title, remedy] = words.codes[kind][word];
    return [`${kind === "xid" ? "Xid" : "SXid"} ${word}`, title, remedy].filter(Boolean);
  }
  const text = valuesAt(place, words)?.[word];
  return text ? [word, text] : null;
}
