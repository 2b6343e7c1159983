"""Tries of policies: what would a text have decided? Workers do it; nothing is applied."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from kcover import reasons
from kcover.decisions import decide as core
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.rescues.incidents import NUMBERED
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import services
from kcover_portal.policies.models import PolicyTry
from kcover_portal.rescue.decide import policy_tries as tries
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import policy_tries

SCOPES = ("node", "now", "days")


class TryBody(base.StrictSerializer):
    """A text, and the incidents to try it on.

    These are the open incidents of one ``node``, all open ones (``now``, the default), or all of the last ``days``.
    """

    yaml = serializers.CharField(trim_whitespace=False)
    node = serializers.CharField(required=False, help_text="cluster/name")
    now = serializers.BooleanField(required=False)
    days = serializers.IntegerField(required=False, min_value=1, max_value=policy_tries.MAX_DAYS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Allows at most one scope."""
        given = [name for name in SCOPES if attrs.get(name)]
        if len(given) > 1:
            raise FieldError(given[1], reasons.of("exclusive", other=given[0]))
        return attrs


class TryIdSerializer(serializers.Serializer[Any]):
    """A try that was begun."""

    id = serializers.IntegerField()


class TriedDecisionSerializer(serializers.Serializer[Any]):
    """A decision that was not stored."""

    answer = serializers.ChoiceField(choices=core.ANSWERS)
    mode = serializers.CharField()
    rule = serializers.CharField(allow_null=True)
    because = serializers.ListField(child=serializers.CharField())
    reasons = serializers.ListField(child=serializers.DictField())
    steps = serializers.ListField(child=serializers.CharField())


class DoneSerializer(serializers.Serializer[Any]):
    """The last rescue of the incident."""

    id = serializers.IntegerField()
    state = serializers.CharField()
    rule = serializers.CharField()


class TrialSerializer(serializers.Serializer[Any]):
    """An incident under the active rules (``before``) and under the text (``after``)."""

    incident = serializers.IntegerField()
    cluster = serializers.CharField()
    node = serializers.CharField()
    kind = serializers.CharField()
    code = serializers.CharField(help_text="a number for xid and sxid, else a short text")
    opened_at = serializers.DateTimeField()
    changed = serializers.BooleanField()
    before = TriedDecisionSerializer()
    after = TriedDecisionSerializer()
    rescue = DoneSerializer(allow_null=True)


class AnswersSerializer(serializers.Serializer[Any]):
    """Incidents by answer."""

    before = serializers.DictField(child=serializers.IntegerField())
    after = serializers.DictField(child=serializers.IntegerField())


class TrySerializer(serializers.Serializer[Any]):
    """The differences that the text would make, as far as known. ``truncated``: only the newest incidents are tried."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField(choices=PolicyTry.State.values)
    because = serializers.CharField(allow_blank=True)
    progress = base.ProgressSerializer(help_text="in incidents")
    incidents = serializers.IntegerField()
    changed = serializers.IntegerField()
    truncated = serializers.BooleanField()
    answers = AnswersSerializer()
    rules = serializers.DictField(child=serializers.IntegerField(), help_text="incidents by the text's rule")
    guards = serializers.DictField(child=serializers.IntegerField(), help_text="incidents that a guard would hold")
    nodes = serializers.ListField(child=serializers.CharField(), help_text="cluster/name of nodes with a change")
    results = TrialSerializer(many=True)


class Try(base.ActionView):
    """Begins a try of a text. Nothing is applied."""

    @extend_schema(operation_id="policies_try", request=TryBody, responses={202: TryIdSerializer})
    def post(self, request: Request) -> Response:
        """Returns the id of a try that workers carry out. 422 for an invalid text, 429 while one is running."""
        base.known_only(request)
        body = base.body_of(request, TryBody)
        with base.place(request, concurrency_limits.VALIDATIONS):
            services.draft(body["yaml"])
        row = policy_tries.begin(
            principal(request),
            body["yaml"],
            days=body.get("days"),
            node=body.get("node", ""),
            now=timezone.now(),
        )
        location = reverse("api:policies-try-one", kwargs={"pk": row.pk}, request=request)
        return Response({"id": row.pk}, status=202, headers={"Location": location})


class OneTry(base.ActionView):
    """A try of the caller."""

    @extend_schema(operation_id="policies_try_retrieve", responses={200: TrySerializer})
    def get(self, request: Request, pk: int) -> Response:
        """Returns the progress and the results so far. They are kept for a day."""
        base.known_only(request)
        return Response(_content(request, _find(request, pk)))


class CancelTry(base.ActionView):
    """Cancels a try."""

    @extend_schema(operation_id="policies_try_cancel", request=None, responses={200: TrySerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Ends the caller's try. Without effect if it has ended."""
        base.known_only(request)
        row = _find(request, pk)
        tries.cancel(row, now=timezone.now())
        row.refresh_from_db()
        return Response(_content(request, row))


def _find(request: Request, pk: int) -> PolicyTry:
    return get_object_or_404(policy_tries.tries(principal(request)), pk=pk)


def _content(request: Request, row: PolicyTry) -> dict[str, Any]:
    found = policy_tries.summary(principal(request), row)
    return {
        "id": row.pk,
        "state": row.state,
        "because": localization.stored(row.because),
        "progress": {"done": found.done, "total": row.total},
        "incidents": len(found.results),
        "changed": len(found.changed),
        "truncated": row.truncated,
        "answers": {"before": found.before, "after": found.after},
        "rules": found.rules,
        "guards": found.guards,
        "nodes": found.nodes,
        "results": [_result(one) for one in found.results],
    }


def _result(result: dict[str, Any]) -> dict[str, Any]:
    for when in ("before", "after"):
        result[when]["because"] = [str(reasons.from_json(reason)) for reason in result[when]["reasons"]]
    return {**result, "code": int(result["code"]) if result["kind"] in NUMBERED else result["code"]}
