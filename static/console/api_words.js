// The words of Swagger UI itself in the language of the console. It has no catalog, so its texts are replaced in place.

const words = new Map();
for (const one of document.querySelector("#api-words").content.children) words.set(one.dataset.word, one.textContent);

// This one stands in the style sheet.
document.documentElement.style.setProperty("--word-required", JSON.stringify(words.get("required")));

const OTHERS = "pre, code, option, .opblock-tag, .opblock-summary, .renderedMarkdown"; // texts of the API

const say = (text) => {
  const word = text.data.trim();
  const said = words.get(word);
  if (said && said !== word && !text.parentElement?.closest(OTHERS)) text.data = text.data.replace(word, said);
};

// Replaces the words in what the records of a MutationObserver say has changed.
export const translate = (records) => {
  for (const { type, target, addedNodes } of records)
    for (const changed of type === "characterData" ? [target] : addedNodes) {
      const texts = document.createTreeWalker(changed, NodeFilter.SHOW_TEXT);
      if (changed.nodeType === Node.TEXT_NODE) say(changed);
      else while (texts.nextNode()) say(texts.currentNode);
    }
};

// Texts of the API that have no translation say so to screen readers.
export const markEnglish = (root) => {
  for (const text of root.querySelectorAll(".renderedMarkdown:not([lang])"))
    text.lang = /\p{Script=Han}/u.test(text.textContent) ? document.documentElement.lang : "en";
};
