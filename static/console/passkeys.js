// Passkeys: a [data-passkey] button asks the server for options, the browser for an answer, and sends its form with it.

function toBytes(text) {
  const plain = text.replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(plain), (character) => character.charCodeAt(0));
}

function toText(bytes) {
  const plain = btoa(String.fromCharCode(...new Uint8Array(bytes)));
  return plain.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// Only these fields of the options are bytes: challenge, user.id, and the id of each listed credential.
function decode(options) {
  const listed = (found) => found?.map((one) => ({ ...one, id: toBytes(one.id) }));
  const decoded = { ...options, challenge: toBytes(options.challenge) };
  if (options.user) decoded.user = { ...options.user, id: toBytes(options.user.id) };
  if (options.excludeCredentials) decoded.excludeCredentials = listed(options.excludeCredentials);
  if (options.allowCredentials) decoded.allowCredentials = listed(options.allowCredentials);
  return decoded;
}

function encode(credential) {
  const { response } = credential;
  const encoded = { clientDataJSON: toText(response.clientDataJSON) };
  if (response.attestationObject) {
    encoded.attestationObject = toText(response.attestationObject);
    encoded.transports = response.getTransports?.() ?? [];
  } else {
    encoded.authenticatorData = toText(response.authenticatorData);
    encoded.signature = toText(response.signature);
    encoded.userHandle = response.userHandle ? toText(response.userHandle) : null;
  }
  return JSON.stringify({
    id: credential.id,
    rawId: toText(credential.rawId),
    type: credential.type,
    response: encoded,
    clientExtensionResults: {},
  });
}

async function answer(address) {
  const asked = await fetch(address, { headers: { Accept: "application/json" } });
  if (!asked.ok) throw new Error(`${address}: ${asked.status}`);
  const { options, state } = await asked.json();
  const publicKey = decode(options);
  const credential = await (options.user
    ? navigator.credentials.create({ publicKey })
    : navigator.credentials.get({ publicKey }));
  return { credential: encode(credential), state };
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-passkey]");
  if (!button) return;
  const { form } = button;
  const given = form.elements;
  const problem = form.querySelector("[data-passkey-problem]");
  if (given.name && !given.name.reportValidity()) return;
  problem.hidden = true;
  button.disabled = true;
  try {
    const { credential, state } = await answer(button.dataset.passkey);
    (given.factor_credential ?? given.credential).value = credential;
    (given.factor_state ?? given.state).value = state;
    form.noValidate = true;
    if (button.dataset.action) form.action = button.dataset.action;
    form.requestSubmit();
  } catch {
    problem.textContent = button.dataset.sayFailed; // cancelled, timed out, or no passkey for this site
    problem.hidden = false;
  } finally {
    button.disabled = false;
  }
});

// Browsers have passkeys only over HTTPS and on localhost. Without them, nothing offers them.
if (window.PublicKeyCredential) document.documentElement.classList.add("passkeys");
