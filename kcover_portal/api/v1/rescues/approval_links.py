"""Links to approve or reject a rescue that waits for approval."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.lib.errors import FieldError
from kcover_portal.rescue.control import approval_links as links
from kcover_portal.rescue.models import Rescue


class LinkBody(base.StrictSerializer):
    """The person who should answer."""

    approver = serializers.CharField(max_length=150)


class LinkSerializer(serializers.Serializer[dict[str, Any]]):
    """A link that answers in the approver's name. Send it to nobody else."""

    approver = serializers.CharField()
    link = serializers.CharField()
    expires_at = serializers.DateTimeField()


class ApprovalLinks(base.ActionView):
    """Links by which an approver can answer without signing in."""

    @extend_schema(operation_id="rescues_approval_links", request=LinkBody, responses={201: LinkSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Creates a link and records it in the audit log. 409 if the rescue does not wait for an approval or the person
        may not answer.
        """
        base.known_only(request)
        who = principal(request)
        visible = accounts.visible(who, Rescue.objects.select_related("cluster", "node"))
        rescue = get_object_or_404(visible, pk=pk)
        require(request, Verb.APPROVE, rescue.node)
        if not isinstance(who, User):
            raise http_errors.Forbidden(reasons.of("person_required"))
        name = base.body_of(request, LinkBody)["approver"]
        step_up(request)
        approver = accounts.find_user(name)
        if approver is None:
            raise FieldError("approver", reasons.of("unknown_user", user=short_text(name)))
        link = links.invite(rescue, approver, maker=who, now=timezone.now())
        answer = {"approver": name, "link": request.build_absolute_uri(link), "expires_at": rescue.expires_at}
        return Response(LinkSerializer(answer).data, status=201)
