// The search on the page of the REST API: operations whose method, path with the values it allows, kind of record or
// summary has all words.

const form = document.querySelector("#operations-search");
const field = document.querySelector("#operations-text");
const found = document.querySelector("#operations-found");
const METHODS = new Set(["get", "post", "put", "patch", "delete"]);
const WAIT = 150; // ms after a key, because all operations are drawn anew

// The name of a method means only the method: GET is a part of too many words.
const matching = (text) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (tag, kind, operation) => {
    const method = operation.get("method");
    const details = operation.get("operation");
    const inPath = details.get("parameters")?.filter((one) => one.get("in") === "path");
    const allowed = inPath?.flatMap((one) => one.getIn(["schema", "enum"]) ?? []);
    const said = [operation.get("path"), tag, kind, details.get("summary"), allowed?.join(" ")].join(" ").toLowerCase();
    return words.every((word) => (METHODS.has(word) ? word === method : said.includes(word)));
  };
};

// A part of Swagger UI. It shows the kinds of record that contain a match as open, and draws nothing if there is none.
const plugin = (system) => ({
  fn: {
    opsFilter: (kinds, text) => {
      const matches = matching(text);
      return kinds
        .map((kind, tag) => {
          const description = kind.getIn(["tagDetails", "description"], "");
          return kind.update("operations", (all) => all.filter((operation) => matches(tag, description, operation)));
        })
        .filter((kind) => kind.get("operations").size);
    },
  },
  wrapComponents: {
    operations: (Original) => (props) =>
      props.specSelectors.taggedOperations().size ? system.React.createElement(Original, props) : null,
  },
  statePlugins: {
    layout: {
      reducers: {
        // What somebody closed before a search must not hide what the search finds.
        console_search: (state) =>
          state.update("shown", (all) => all?.filter((shown, thing) => shown || thing.get(0) !== "operations-tag")),
      },
      actions: { openMatches: () => ({ type: "console_search" }) },
      wrapSelectors: {
        isShown:
          (original, { layoutSelectors }) =>
          (_state, thing, preset) =>
            original(thing, preset || (thing[0] === "operations-tag" && Boolean(layoutSelectors.currentFilter()))),
      },
    },
  },
});

const start = (system) => {
  const total = system.specSelectors.operations().size;
  const apply = () => {
    const text = field.value.trim();
    system.layoutActions.openMatches();
    system.layoutActions.updateFilter(text);
    const number = system.specSelectors.taggedOperations().reduce((sum, kind) => sum + kind.get("operations").size, 0);
    const said = number ? form.dataset.sayFound : form.dataset.sayNone;
    found.textContent = text && said.replace("{n}", number).replace("{total}", total).replace("{text}", text);
    const address = new URL(location.href);
    if (text) address.searchParams.set("q", text);
    else address.searchParams.delete("q");
    history.replaceState(history.state, "", address);
  };
  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(apply, WAIT);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    apply();
    requestAnimationFrame(() => document.querySelector("#swagger-ui .opblock-summary-control")?.focus());
  });
  field.value = new URL(location.href).searchParams.get("q") ?? "";
  form.hidden = false;
  if (field.value) apply();
};

export const search = { plugin, start };
