"""Signed events of vendors about their repairs: the way back of the topic ``tickets``."""

from typing import Any, Final

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover.repairs.vendor_events import VendorEvent
from kcover_portal.api.body_parsers import StrictJsonParser, refuse_encoded
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.repairs import ticket_doors
from kcover_portal.api.v1.repairs.repairs import PartBody, SerialBody
from kcover_portal.repairs.services import vendor_events

MAX_BODY: Final = 64 * 1024  # bytes
COLUMNS: Final[tuple[str, ...]] = ("ticket", "due", "assignee", "action")


class VendorEventBody(base.StrictSerializer):
    """An event about a repair. Which details it may give depends on ``event``.

    ``refuse`` and ``comment`` need a comment. ``delivery``: the same each time that this event is sent.
    """

    delivery = serializers.RegexField(r"\A[!-~]{1,100}\Z", help_text="1 to 100 printable ASCII characters")
    event = serializers.ChoiceField([event.value for event in VendorEvent])
    repair = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    comment = serializers.CharField(required=False, allow_blank=True, max_length=base.MAX_REASON_CHARACTERS, default="")
    ticket = serializers.CharField(required=False, allow_blank=True, max_length=200)
    due = serializers.DateTimeField(required=False, help_text="the next date, at most 365 days away")
    assignee = serializers.CharField(required=False, allow_blank=True, max_length=200)
    action = serializers.CharField(required=False, allow_blank=True, max_length=200, help_text="to the part")
    part = PartBody(required=False)
    machine = SerialBody(required=False)


class VendorEventSerializer(serializers.Serializer[Any]):
    """The answer to an event; the same to a repeated delivery."""

    delivery = serializers.CharField()
    repair = serializers.IntegerField()
    state = serializers.CharField(help_text="of the repair after the event")


class VendorEvents(base.ActionView):
    """Takes the events of a sink's vendor."""

    authentication_classes = ()
    permission_classes = ()
    parser_classes = (StrictJsonParser,)

    @extend_schema(
        operation_id="repairs_vendor_events",
        parameters=[*ticket_doors.SIGNED],
        request=VendorEventBody,
        responses={200: VendorEventSerializer},
        auth=[],
    )
    def post(self, request: Request, name: str) -> Response:
        """Carries out an event, once for each delivery. 403 without a valid signature.

        404 for a repair of another vendor, 409 if its state does not allow the event, 422 for a delivery with another
        body. A vendor never closes a repair. A sink may send 2 events per second, 20 at once (429).
        """
        base.known_only(request)
        signed, now = ticket_doors.signed_request(request, name, most=MAX_BODY), timezone.now()
        sink = vendor_events.authenticate(signed, now=now)
        ticket_doors.count(sink)
        refuse_encoded(request)
        event = _event(base.body_of(request, VendorEventBody))
        taken = vendor_events.take(sink, event, digest=signed.digest, now=now)
        return Response(VendorEventSerializer(taken).data)


def _event(body: dict[str, Any]) -> vendor_events.Event:
    details = {name: body[name] for name in (*COLUMNS, "part", "machine") if name in body}
    return vendor_events.Event(
        delivery=body["delivery"],
        event=VendorEvent(body["event"]),
        repair=body["repair"],
        comment=body["comment"],
        details=details,
        columns=vendor_events.columns_of(details),
    )
