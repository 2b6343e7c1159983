"""Compresses pages, fragments and JSON on the wire. Static files have compressed copies on disk."""

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

COMPRESSED = ("text/html", "application/json")


class CompressedPages(GZipMiddleware):
    """Answers to GET only: what an answer to POST shows once, such as a token, never depends on compression.

    Django adds random bytes, so that the length of an answer tells nothing about its content (BREACH). Streams are left
    out, because a slow client must not keep a compressor busy.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Compresses the answer if the client accepts gzip."""
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        if request.method != "GET" or response.streaming or kind not in COMPRESSED:
            return response
        compressed: HttpResponseBase = super().process_response(request, response)
        return compressed
