// An approval link: its token is behind # and reaches the server once, in the body of a request.

const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", location.pathname);
  document.getElementById("link-token").value = token;
  document.getElementById("link-form").requestSubmit();
}
