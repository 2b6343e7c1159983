"""Replies by mail about repairs, as a gateway of the mail server passes them on."""

from typing import Any, Final

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import parsers, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.api.body_parsers import MAX_BYTES, refuse_encoded, whole
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.repairs import ticket_doors
from kcover_portal.api.v1.repairs.vendor_events import VendorEventSerializer
from kcover_portal.repairs.services import mail_events

MEDIA_TYPE: Final = "message/rfc822"


class MailParser(parsers.BaseParser):
    """A whole mail as it came."""

    media_type = MEDIA_TYPE

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, bytes]:
        """Returns the raw mail. Raises TooLarge."""
        return {"mail": whole(stream, parser_context, most=MAX_BYTES)}


class MailReplySerializer(VendorEventSerializer):
    """What became of a reply; the same if the mail comes again."""

    event = serializers.CharField(help_text="how the reply was understood")


class MailReplies(base.ActionView):
    """Takes the replies to a sink's mails."""

    authentication_classes = ()
    permission_classes = ()
    parser_classes = (MailParser,)

    @extend_schema(
        operation_id="repairs_mail_messages",
        parameters=[*ticket_doors.SIGNED],
        request={MEDIA_TYPE: OpenApiTypes.BINARY},
        responses={200: MailReplySerializer},
        auth=[],
    )
    def post(self, request: Request, name: str) -> Response:
        """Carries out a reply, once for each mail. 403 without a valid signature, token or sender.

        404 for a repair of another vendor, 409 if its state does not allow the event, 422 for a mail that is no reply.
        A mail never closes a repair. A sink may take 2 mails per second, 20 at once (429).
        """
        base.known_only(request)
        signed, now = ticket_doors.signed_request(request, name, most=MAX_BYTES), timezone.now()
        sink = mail_events.authenticate(signed, now=now)
        ticket_doors.count(sink)
        refuse_encoded(request)
        data: Any = request.data
        reply = mail_events.read(data.get("mail", b""), sink=sink)  # a request without a body is not parsed
        taken = mail_events.take(sink, reply, address=signed.address, now=now)
        return Response(MailReplySerializer({**taken, "event": reply.event.value}).data)
