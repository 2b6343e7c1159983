"""A stored secret is sent only to the server that it was given for.

A person who may change an address, but does not know its secret, could otherwise have it sent to another server.
"""

from kcover import reasons
from kcover.actions import attributes
from kcover_portal.errors import FieldError


def check_server(before: str, after: str, *, secret: str) -> None:
    """Raises FieldError for the field ``secret`` if the two addresses have different servers."""
    if _server(before) != _server(after):
        raise FieldError(secret, reasons.of("secret_again"))


def _server(url: str) -> tuple[str, str | None, int | None] | str:
    parts = attributes.web_address(url)
    return (parts.scheme, parts.hostname, parts.port) if parts is not None else url
