"""Shared by the doors of ticket systems: vendors, Jira and mails. Each names a sink and signs its raw body."""

from http import HTTPStatus
from typing import Final

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.api import http_errors
from kcover_portal.api.leaky_buckets import LeakyBuckets
from kcover_portal.audit_stream.models import Sink
from kcover_portal.lib import outgoing
from kcover_portal.repairs.services import vendor_events

EVENTS_PER_SECOND: Final = 2  # of one sink, in each process
BURST_EVENTS: Final = 20

SINK: Final = OpenApiParameter("name", str, OpenApiParameter.PATH, description="of the sink")
SIGNED: Final = (  # parameters of a door whose senders sign the time as well
    SINK,
    OpenApiParameter(outgoing.SIGNATURE, str, OpenApiParameter.HEADER, required=True),
    OpenApiParameter(
        vendor_events.TIMESTAMP, str, OpenApiParameter.HEADER, required=True, description="Unix time in seconds"
    ),
)

event_rates: LeakyBuckets[int] = LeakyBuckets(rate=EVENTS_PER_SECOND, burst=BURST_EVENTS)  # by key of the sink


def signed_request(request: Request, name: str, *, most: int, header: str = outgoing.SIGNATURE) -> vendor_events.Signed:
    """The request with the signature in ``header``. Raises TooLarge for a body of more than ``most`` bytes."""
    body = request.body
    if len(body) > most:
        raise http_errors.TooLarge(reasons.of("too_large", bytes=str(len(body)), limit=most))
    return vendor_events.Signed(
        name=name,
        signature=request.headers.get(header, ""),
        timestamp=request.headers.get(vendor_events.TIMESTAMP, "").strip(),
        body=body,
        address=accounts.client_address(request),
    )


def count(sink: Sink) -> None:
    """Counts an event of the sink. Raises RetryAfter if it sends too many."""
    if wait := event_rates.take(sink.pk):
        limit = reasons.of("vendor_rate", sink=sink.name, rate=EVENTS_PER_SECOND, burst=BURST_EVENTS)
        raise http_errors.RetryAfter(limit, status=HTTPStatus.TOO_MANY_REQUESTS, retry_after=wait)
