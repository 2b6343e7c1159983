"""The OpenAPI document, made once in each process: that takes more than a second."""

import functools
from typing import Any

from drf_spectacular.generators import SchemaGenerator


@functools.cache
def document() -> dict[str, Any]:
    """Returns the document of everything that REST offers, as somebody with all rights reads it. It is not changed."""
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made
