"""Applications with a response that does not fit any buffer, and with a short deadline for its reader."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from a2wsgi import WSGIMiddleware

from kcover_portal.config import request_limits

request_limits.WRITE_SECONDS = 2.0


def web(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return repeat(b"x" * 400_000, 1000) if environ["PATH_INFO"] == "/endless" else iter([b"ok\n"])


live = WSGIMiddleware(web, workers=2)  # type: ignore[arg-type]
