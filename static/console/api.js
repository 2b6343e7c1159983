// Swagger UI in the theme and the language of the console, with a search, headings, names and targets as WCAG asks for.
import { search } from "./api_search.js";
import { markEnglish, translate } from "./api_words.js";

const root = document.querySelector("#swagger-ui");

const paint = () =>
  document.documentElement.classList.toggle("dark-mode", document.documentElement.dataset.bsTheme === "dark");
document.addEventListener("theme", paint);
paint();

// A layout of our own, because that of Swagger UI brings a second main landmark, a title and a list of servers.
// The path of an operation is a link inside of the button that opens it. Nothing that can be focused may be in a button.
const mended = (system) => ({
  components: {
    ConsoleLayout: ({ getComponent }) => {
      const draw = system.React.createElement;
      const part = (name) => draw(getComponent(name, true), { key: name });
      const authorize = draw("div", { key: "authorize", className: "scheme-container" }, part("AuthorizeBtnContainer"));
      return draw("div", { className: "swagger-ui" }, [part("errors"), authorize, part("operations")]);
    },
  },
  wrapComponents: {
    DeepLink: (_, { React }) => (props) => React.createElement("span", { className: "nostyle" }, props.text),
  },
});

const ui = window.SwaggerUIBundle({
  url: root.dataset.schema,
  domNode: root,
  presets: [window.SwaggerUIBundle.presets.apis],
  plugins: [mended, search.plugin],
  layout: "ConsoleLayout",
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  syntaxHighlight: { activated: false }, // its colours have too little contrast
  onComplete: () => search.start(ui.getSystem()),
  requestInterceptor: (request) => {
    const own = new URL(request.url, location.href).origin === location.origin;
    if (own && !["GET", undefined].includes(request.method)) request.headers["X-CSRFToken"] = document.body.dataset.csrf;
    return request;
  },
});
window.ui = ui;

// What Swagger UI lacks: headings in order below the page's h1, scrolling by keyboard, names of parameters' fields.
const LEVELS = { H3: 2, H4: 3, H5: 4 };
const mend = (records) => {
  translate(records);
  markEnglish(root);
  for (const heading of root.querySelectorAll("h3:not([aria-level]), h4:not([aria-level]), h5:not([aria-level])"))
    heading.setAttribute("aria-level", LEVELS[heading.tagName]);
  for (const box of root.querySelectorAll("pre:not([tabindex]), .model-box:not([tabindex])")) box.tabIndex = 0;
  for (const row of root.querySelectorAll("tr[data-param-name]"))
    for (const field of row.querySelectorAll(":is(input, select, textarea):not([aria-label])"))
      field.setAttribute("aria-label", row.dataset.paramName);
};
new MutationObserver(mend).observe(root, { childList: true, characterData: true, subtree: true });
mend([{ addedNodes: [root] }]);
