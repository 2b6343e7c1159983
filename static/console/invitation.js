// The token of an invitation stands behind "#", which browsers do not send. It goes into the form, and out of the
// address and the history.

const form = document.getElementById("invitation");
const token = location.hash.slice(1);
if (token) history.replaceState(null, "", location.pathname);
if (form && token) {
  form.elements.token.value = token;
  form.requestSubmit();
}
