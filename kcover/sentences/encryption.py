"""Encryption of secrets in the database: which secret cannot be read, and why."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "secret_again": _(
        "The address names another server. Enter the secret again, so that it is not sent to the wrong server."
    ),
    "secret_unreadable": _("The stored secret {secret} of {row} cannot be read: {why}"),
    "encryption_file_unreadable": _("The encryption keys cannot be read from {path}: {error}"),
    "encryption_command_failed": _("{program} of {setting} failed: {error}"),
    "encryption_key_invalid": _(
        "Line {line} of {source} is not an encryption key. Write a key that `manage.py secrets key` prints."
    ),
    "encryption_keys_missing": _(
        "There is no encryption key in {source}. Write a key that `manage.py secrets key` prints."
    ),
    "encryption_key_unset": _(
        "It is encrypted with key {key}, and no key is configured. Set KCOVER_ENCRYPTION_KEY_FILE or"
        " KCOVER_ENCRYPTION_KEY_COMMAND."
    ),
    "encryption_key_of_engine": _(
        "It is encrypted with key {key} of the engine, which only worker and watch have (KCOVER_ENGINE_KEY_FILE)."
        " Web and live need a second kubeconfig: run `manage.py cluster read-access` in worker."
    ),
    "encryption_key_unknown": _(
        "It is encrypted with key {key}. The configured keys are {known}. Add the missing key, or enter the secret"
        " again."
    ),
    "encryption_value_altered": _(
        "It was altered, or copied from another row. Enter the secret again, or restore the row from a backup."
    ),
    "encryption_value_plain": _("It is not encrypted. Check who wrote it, then run `manage.py secrets rotate`."),
}
