"""The webhooks of Jira about the issues of repairs: the way back of a Jira sink."""

from datetime import UTC, datetime
from typing import Any, Final

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover.repairs import ticket_text
from kcover_portal.api.body_parsers import MAX_BYTES, StrictJsonParser, refuse_encoded
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.repairs import ticket_doors
from kcover_portal.repairs.services import jira_events

LAST_MILLISECOND: Final = 32_503_680_000_000  # of the year 2999


class StatusBody(serializers.Serializer[Any]):
    """The state of an issue."""

    name = serializers.CharField(max_length=1000)


class AssigneeBody(serializers.Serializer[Any]):
    """The person to whom an issue is assigned."""

    displayName = serializers.CharField(max_length=1000, required=False, allow_blank=True)


class IssueFieldsBody(serializers.Serializer[Any]):
    """The fields that the portal reads."""

    status = StatusBody()
    assignee = AssigneeBody(required=False, allow_null=True)


class IssueBody(serializers.Serializer[Any]):
    """The issue after the change."""

    key = serializers.CharField(max_length=60)
    id = serializers.CharField(max_length=30, required=False, help_text="stays when the issue is moved to a project")
    fields = IssueFieldsBody()  # type: ignore[assignment] # Jira's name; DRF reads the declared fields elsewhere


class ChangeBody(serializers.Serializer[Any]):
    """One changed field."""

    field = serializers.CharField(max_length=1000)


class ChangelogBody(serializers.Serializer[Any]):
    """The fields that the change touched."""

    items = ChangeBody(many=True)


class JiraEventBody(serializers.Serializer[Any]):
    """A webhook as Jira sends it. Everything else in it is ignored."""

    webhookEvent = serializers.CharField(max_length=200)
    timestamp = serializers.IntegerField(min_value=0, max_value=LAST_MILLISECOND, help_text="Unix time in milliseconds")
    issue = IssueBody()
    changelog = ChangelogBody(required=False, allow_null=True)


class JiraEventSerializer(serializers.Serializer[Any]):
    """What became of a webhook; the same for a repeated one."""

    delivery = serializers.CharField(help_text="SHA-256 of the body")
    repair = serializers.IntegerField()
    state = serializers.CharField(help_text="of the repair after the webhook")
    acts = serializers.ListField(child=serializers.CharField(), help_text="the verbs that were carried out")


class JiraEvents(base.ActionView):
    """Takes the webhooks of a sink's Jira."""

    authentication_classes = ()
    permission_classes = ()
    parser_classes = (StrictJsonParser,)

    @extend_schema(
        operation_id="repairs_jira_events",
        parameters=[
            ticket_doors.SINK,
            OpenApiParameter(jira_events.SIGNATURE, str, OpenApiParameter.HEADER, required=True),
        ],
        request=JiraEventBody,
        responses={200: JiraEventSerializer},
        auth=[],
    )
    def post(self, request: Request, name: str) -> Response:
        """Takes a repair to the state that the new state of its issue means, once for each webhook.

        403 without a valid signature, or for a webhook older than a day. 404 for an issue that is none of a repair, 409
        if the repair's state does not allow it. Jira never closes a repair. A sink may send 2 webhooks per second, 20
        at once (429).
        """
        # The query is not read: Jira appends one, triggeredByUser.
        signed = ticket_doors.signed_request(request, name, most=MAX_BYTES, header=jira_events.SIGNATURE)
        now = timezone.now()
        sink = jira_events.authenticate(signed, now=now)
        ticket_doors.count(sink)
        refuse_encoded(request)
        webhook = _webhook(base.body_of(request, JiraEventBody))
        taken = jira_events.take(sink, webhook, digest=signed.digest, now=now)
        return Response(JiraEventSerializer(taken).data)


def _webhook(body: dict[str, Any]) -> jira_events.Webhook:
    changed = (body.get("changelog") or {}).get("items", [])
    assignee = (body["issue"]["fields"].get("assignee") or {}).get("displayName", "")
    return jira_events.Webhook(
        event=body["webhookEvent"],
        at=datetime.fromtimestamp(body["timestamp"] / 1000, UTC),
        issue=body["issue"]["key"],
        number=body["issue"].get("id", ""),
        state=body["issue"]["fields"]["status"]["name"],
        moved=any(item["field"] == "status" for item in changed),
        assignee=ticket_text.one_line(assignee, most=jira_events.MAX_ASSIGNEE),
    )
