"""The keys of secrets in the database."""

from dataclasses import dataclass
from typing import ClassVar

from kcover.audit.base import Act, register


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsRotated(Act):
    """Secrets were encrypted with ``key``, a key's id. ``unreadable``: how many could not be decrypted."""

    VERB: ClassVar[str] = "secrets.rotated"

    key: str
    changed: int
    unreadable: int = 0

    @property
    def subject(self) -> str:
        """The key."""
        return f"encryption key {self.key}"
