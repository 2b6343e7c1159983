"""The file of settings."""

from kcover.audit.base import Act


class SettingsImported(Act, verb="settings.imported", subject="installation"):
    """A file of settings was imported.

    ``sha256``: of the file. ``created`` and ``changed``: objects, such as "cluster east"; at most 500 of each.
    ``left``: how many were there already and were not changed. ``keep_modes``: modes that act were taken over.
    """

    sha256: str
    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    left: int = 0
    keep_modes: bool = False


class SecretsExported(Act, verb="settings.secrets_exported", subject="installation"):
    """A file of settings with the encrypted secrets was written. ``secrets``: how many it has."""

    secrets: int
