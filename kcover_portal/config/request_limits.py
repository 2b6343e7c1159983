"""Limits of requests that the web servers enforce before a page or an endpoint sees a request.

A slow or idle client may cost a socket and its bounded buffer, never a thread. Agents' reports have limits of their own
(``api.agent.body``).
"""

from collections.abc import Iterable

HEAD_SECONDS = 10.0  # from the first byte of a request, or from the connection, to the end of its headers
REQUEST_SECONDS = 30.0  # from there to the end of its body
WRITE_SECONDS = 60.0  # for one piece of a response; a reader that takes longer is disconnected

MAX_HEAD = 64 * 1024  # bytes
MAX_HEADS = 16 * 1024 * 1024  # bytes of all heads that a process has received a part of; most arrive in one piece
MAX_BODY = 4 * 1024 * 1024  # bytes; more than any page or REST call needs
MAX_ANONYMOUS_BODY = 64 * 1024  # bytes, without a session and without a token; sign-in needs less than one KiB
MAX_SIGNED_BODY = 1024 * 1024  # bytes, with a signature instead: webhooks of Jira, mails from a gateway
MAX_BUFFERED = 64 * 1024 * 1024  # bytes of all requests that a process has received and not answered

SIGNATURES = (b"x-hub-signature", b"x-kcover-signature")
SESSION_COOKIE = b"sessionid="


def max_body(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Returns how many bytes the body may have. Names are lower case. Whether a credential is valid is seen later."""
    most = MAX_ANONYMOUS_BODY
    for name, value in headers:
        if name == b"authorization" or (name == b"cookie" and SESSION_COOKIE in value):
            return MAX_BODY
        if name in SIGNATURES:
            most = MAX_SIGNED_BODY
    return most
