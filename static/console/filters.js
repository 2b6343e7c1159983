// Filters by time: the field holds the reader's local time, the address a time in UTC or a duration (24h).

for (const field of document.querySelectorAll("[data-time-of]")) {
  const moment = new Date(hiddenOf(field).value);
  if (!Number.isNaN(moment.valueOf()) && hiddenOf(field).value.includes("-")) {
    const local = new Date(moment - moment.getTimezoneOffset() * 60_000);
    field.value = local.toISOString().slice(0, 16);
  }
}

function hiddenOf(field) {
  return field.form.elements[field.dataset.timeOf];
}

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-time-of]")) return;
  const { value } = event.target;
  hiddenOf(event.target).value = value ? new Date(value).toISOString().replace(".000Z", "Z") : "";
});

// On a narrow screen the filters would fill the first screen: only the search stays, the others unfold.
const form = document.querySelector("form.filters");
const folds = form?.querySelector("[data-folds]");
if (folds) {
  folds.hidden = false;
  form.classList.add("folded");
  folds.addEventListener("click", () => {
    const folded = form.classList.toggle("folded");
    folds.setAttribute("aria-expanded", `${!folded}`);
  });
}
