"""The server of an address. A stored secret is sent only to the server that it was given for.

A person who may change an address, but does not know its secret, could otherwise have it sent to another server.
"""

from kcover.actions import attributes


def server(url: str) -> str:
    """Returns scheme, host and port of an address; the text itself if it is none."""
    parts = attributes.web_address(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or ''}" if parts is not None else url
