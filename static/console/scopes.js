// The scope picker: known values are buttons that put their name into the field, or take it out. The server answers each
// change with the line below the field. Without this module the field is plain text.

const names = (field) => field.value.split(/[\s,]+/).filter(Boolean);

function write(field, list) {
  field.value = list.join(", ");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-scope-value]");
  if (!button) return;
  const field = button.closest("form").elements.which;
  const value = button.dataset.scopeValue;
  const list = names(field);
  const at = list.indexOf(value);
  if (at >= 0) list.splice(at, 1);
  else {
    const last = list.at(-1);
    const known = last && document.getElementById(`scope-value-${last}`);
    if (last && !known && value.toLowerCase().includes(last.toLowerCase())) list.pop(); // the unfinished name
    list.push(value);
  }
  button.setAttribute("aria-pressed", String(at < 0));
  write(field, list);
});

document.addEventListener("change", (event) => {
  const form = event.target.form;
  if (event.target.name === "by" && form?.elements.which) form.elements.which.value = ""; // names of another kind
}, true); // before htmx reads the form
