"""The evidence that the audit log is intact: signing keys, signed heads, anchors, a restored database."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Signing keys.
    "signing_key_unreadable": _(
        "The signing key {path} cannot be read: {error}. Create one with manage.py ledger key, and set"
        " KCOVER_SIGNING_KEY."
    ),
    "signing_key_kind": _("it is a key of another kind"),
    "signing_key_invalid": _(
        "The signing key must be an unencrypted Ed25519 key in PEM format, such as manage.py ledger key makes: {error}"
    ),
    "signing_key_exists": _("{path} exists. To replace the key, use manage.py ledger key --rotate."),
    "public_keys_missing": _("{path} contains no public key in PEM format."),
    # Anchors.
    "anchor_unreadable": _("The anchor {path} cannot be read: {error}."),
    "anchor_line_invalid": _("not a line of signed heads: {error}"),
    "anchor_not_written": _("The anchor {path} cannot be written: {error}."),
    "anchor_vanished": _(
        "At {at} the anchor {path} was missing or empty, although heads had been published to it. Its removal may hide"
        " changes of the audit log. Compare with a copy: manage.py ledger verify --anchor FILE."
    ),
    "anchor_bucket_silent": _("no usable answer; see the portal's log"),
    "anchor_bucket_refused": _("Bucket {bucket} did not take the object: {error}"),
    "anchor_webhook_refused": _("The anchor webhook answered with status {status}."),
    "chain_missing": _("the chain is missing: every registered cluster has entries"),
    # What an anchor says and the database does not.
    "anchored_chain_missing": _(
        "Chain {cluster} is missing. At {at} it had {number} entries. What they record is unknown."
    ),
    "anchored_chain_behind": _(
        "Chain {cluster} ends at entry {newest}. At {at} it had {number} entries. What the missing entries record is"
        " unknown."
    ),
    "anchored_chain_rewritten": _(
        "Entry {number} of chain {cluster} is not the entry that was published at {at}. It or an earlier entry was"
        " rewritten."
    ),
    "database_diverged": _(
        "The database does not have the audit log that was published at {at}. It was restored from a backup, or"
        " rewritten. Changes of that time are unknown: rescues, approvals, revoked tokens, roles. Check the nodes,"
        " revoke tokens again, then resume."
    ),
    # Proofs of rescues.
    "proof_without_entries": _("The audit log has no entries of rescue {rescue}, so it has no proof."),
    "proof_with_key": _(
        "The proof contains an address with a part that may be a key. Downloading it requires the right to change"
        " policies."
    ),
}
