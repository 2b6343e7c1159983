"""An application that says what it was asked, slowly if asked to, and whether an endless answer has ended."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcover_portal.asgi.bodies import BodyBuffer
from kcover_portal.asgi.page_threads import PageThreads

FOLDER = Path(os.environ["TEST_FOLDER"])


def pages(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
    if environ["PATH_INFO"] in ("/endless", "/wrong-length"):
        length = [("Content-Length", "1")] if environ["PATH_INFO"] == "/wrong-length" else []
        start_response("200 OK", [("Content-Type", "text/plain"), *length])
        try:
            while True:
                yield b"x" * 1000
        finally:
            (FOLDER / "ended").touch()
    if environ["PATH_INFO"] == "/slow":
        (FOLDER / "begun").touch()
        time.sleep(float(environ["QUERY_STRING"]))
    asked = {name: value for name, value in environ.items() if name.isupper() and isinstance(value, str)}
    body = json.dumps({**asked, "body": environ["wsgi.input"].read().decode(), "pid": os.getpid()}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    yield body


application = BodyBuffer(PageThreads(pages, threads=2))
