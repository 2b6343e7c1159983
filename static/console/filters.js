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
