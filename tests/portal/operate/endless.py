"""An application with a response that does not fit any buffer, and with a short deadline for its reader."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from kcover_portal.asgi.bodies import BodyBuffer
from kcover_portal.asgi.page_threads import PageThreads
from kcover_portal.config import request_limits

request_limits.WRITE_SECONDS = 2.0


def pages(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return repeat(b"x" * 400_000, 1000) if environ["PATH_INFO"] == "/endless" else iter([b"ok\n"])


application = BodyBuffer(PageThreads(pages, threads=2))
