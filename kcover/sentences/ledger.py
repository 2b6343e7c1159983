"""The evidence that the audit log is intact: signing keys, signed heads, anchors, a restored database."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Signing keys.
    "signing_key_unreadable": _(
        "The signing key {path} cannot be read: {error}. Create one with manage.py ledger key, and set"
        " KCOVER_SIGNING_KEY."
    ),
    "signing_key_invalid": _(
        "The signing key must be an unencrypted Ed25519 key in PEM format, such as manage.py ledger key makes: {error}"
    ),
    "signing_key_exists": _("{path} exists. To replace the key, use manage.py ledger key --rotate."),
    "public_keys_missing": _("{path} contains no public key in PEM format."),
}
