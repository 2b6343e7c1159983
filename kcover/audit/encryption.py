"""The keys of secrets in the database."""

from kcover.audit.base import Act


class SecretsRotated(Act, verb="secrets.rotated", subject="encryption key {key}"):
    """Secrets were encrypted with ``key``, a key's id. ``unreadable``: how many could not be decrypted."""

    key: str
    changed: int
    unreadable: int = 0
