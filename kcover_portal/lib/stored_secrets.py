"""A stored secret is sent only to the server that it was given for.

A person who may change an address, but does not know its secret, could otherwise have it sent to another server.
"""

from collections.abc import Mapping
from typing import Any

from django.db import models

from kcover import reasons
from kcover.actions import attributes
from kcover_portal import encryption
from kcover_portal.lib.errors import FieldError


def check_address(row: models.Model, given: Mapping[str, Any], before: str | None, *, address: str) -> None:
    """Raises FieldError if the row's ``secret`` is kept, and its new address has another server.

    ``address``: the column; ``before``: its previous value, None if this process cannot read it.
    """
    if address in given and "secret" not in given and encryption.is_set(row, "secret"):
        check_server(before or "", getattr(row, address), secret="secret")


def check_server(before: str, after: str, *, secret: str) -> None:
    """Raises FieldError for the field ``secret`` if the two addresses have different servers."""
    if server(before) != server(after):
        raise FieldError(secret, reasons.of("secret_again"))


def changed(row: models.Model, before: Mapping[str, Any], *, address: str) -> list[str]:
    """Returns the columns whose values differ from those before; with a new address also a secret that was given."""
    moved = address in before and before[address] != getattr(row, address)
    return [name for name, value in before.items() if getattr(row, name) != value or (name == "secret" and moved)]


def server(url: str) -> str:
    """Returns scheme, host and port of an address; the text itself if it is none."""
    parts = attributes.web_address(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or ''}" if parts is not None else url
