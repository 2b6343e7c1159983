"""Policies: validated, applied, read, taken back; ``ETag`` is the number of the revision in force."""

import re
from dataclasses import asdict
from typing import Any

import django_filters as filters
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import exceptions, parsers, serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import waits
from kcover.policy import document
from kcover_portal.accounts import queries as accounts
from kcover_portal.api import idempotency, paging, parsing, problems
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.policies.services import source

ETAG = re.compile(r'(?:W/)?"?([0-9]{1,9})"?')
IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="the revision that was edited")
IF_NONE_MATCH = OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER, description="*: only if it is new")
REASON = OpenApiParameter("reason", str, description="why, for a body that is YAML or absent")
KEY = OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)


class YamlParser(parsers.BaseParser):
    """A body that is the policy's text itself."""

    media_type = "application/yaml"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        """The raw text; raises TooLarge."""
        return {"text": parsing.whole(stream, parser_context, most=source.MAX_BYTES)}


class TextYamlParser(YamlParser):
    """The same under an older name."""

    media_type = "text/yaml"


class OldYamlParser(YamlParser):
    """The same under the name used before there was a registered one."""

    media_type = "application/x-yaml"


class PlainParser(YamlParser):
    """The same from clients that only know text."""

    media_type = "text/plain"


PARSERS = (parsing.StrictJsonParser, YamlParser, TextYamlParser, OldYamlParser, PlainParser)
REQUEST = {"application/yaml": OpenApiTypes.STR}


class TextBody(base.Act):
    """A policy text as JSON."""

    text = serializers.CharField(trim_whitespace=False, allow_blank=True)


class RollbackBody(base.Act):
    """The revision to go back to."""

    revision = serializers.IntegerField(min_value=1)


class ActionSerializer(serializers.Serializer[Any]):
    """An action; ``seconds`` is its wait time."""

    name = serializers.CharField()
    attribute = serializers.DictField(child=serializers.CharField())
    seconds = serializers.IntegerField(allow_null=True)


class SelectorSerializer(serializers.Serializer[Any]):
    """Which nodes: any one of the labels, or all of them."""

    operator = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())


class RuleSerializer(serializers.Serializer[Any]):
    """A rule as the portal understood it. ``errorCode`` null: any fault of the node; ``nodeSelector`` null: any."""

    priority = serializers.IntegerField()
    errorCode = serializers.ListField(child=serializers.CharField(), allow_null=True)
    nodeSelector = SelectorSerializer(allow_null=True)
    actions = ActionSerializer(many=True)
    mode = serializers.CharField()
    onDrainTimeout = serializers.CharField()
    verify = serializers.BooleanField()
    verifyAgent = serializers.BooleanField()
    escalate = serializers.CharField(allow_null=True)


class ParsedSerializer(serializers.Serializer[Any]):
    """A policy as the portal understood it."""

    name = serializers.CharField()
    apiVersion = serializers.CharField()
    rules = RuleSerializer(many=True)


class WarningSerializer(serializers.Serializer[Any]):
    """Something valid that may surprise, with its place in the text."""

    line = serializers.IntegerField()
    column = serializers.IntegerField()
    path = serializers.CharField()
    message = serializers.CharField()


class ValidSerializer(serializers.Serializer[Any]):
    """A text that can be applied."""

    valid = serializers.BooleanField()
    policies = ParsedSerializer(many=True)
    warnings = WarningSerializer(many=True)


class RevisionSerializer(serializers.ModelSerializer[Revision]):
    """One text of a policy; it never changes."""

    class Meta:
        model = Revision
        fields = ("number", "text", "author", "reason", "at")


class PolicySerializer(serializers.ModelSerializer[Revision]):
    """A policy in force: its revision's text, and the rules read from it."""

    name = serializers.CharField(source="policy.name", read_only=True)
    revision = serializers.IntegerField(source="number", read_only=True)
    created_at = serializers.DateTimeField(source="policy.created_at", read_only=True)
    rules = serializers.SerializerMethodField()

    class Meta:
        model = Revision
        fields = ("name", "revision", "text", "rules", "author", "reason", "at", "created_at")

    @extend_schema_field(RuleSerializer(many=True))
    def get_rules(self, revision: Revision) -> list[dict[str, Any]]:
        """The rules as understood; none where this version cannot read the text."""
        try:
            rules: list[dict[str, Any]] = parsed(document.read(revision.document)).get("rules", [])
            return rules
        except document.PolicyInvalid:
            return []


class PolicyFilter(filters.FilterSet):
    """Policies by name or content."""

    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Revision
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Revision], name: str, value: str) -> QuerySet[Revision]:
        """Policies whose text contains the words."""
        return rows.filter(text__icontains=value)


def parsed(policy: document.Policy | document.StandbyPolicy) -> dict[str, Any]:
    """A policy as JSON, with the seconds of each wait time."""
    if isinstance(policy, document.StandbyPolicy):
        pairs = [{"originNode": dict(one.origin), "targetNode": dict(one.target)} for one in policy.matches]
        return {"name": policy.name, "apiVersion": policy.api_version, "rules": [], "matches": pairs}
    return {
        "name": policy.name,
        "apiVersion": policy.api_version,
        "rules": [
            {
                "priority": rule.priority,
                "errorCode": list(rule.codes) if rule.codes is not None else None,
                "nodeSelector": {"operator": rule.operator, "labels": dict(rule.labels)}
                if rule.labels is not None
                else None,
                "actions": [
                    {
                        "name": action.name,
                        "attribute": dict(action.attribute),
                        "seconds": _seconds(action.attribute.get("waittime", "")),
                    }
                    for action in rule.actions
                ],
                "mode": rule.mode,
                "onDrainTimeout": rule.on_drain_timeout,
                "verify": rule.verify,
                "verifyAgent": rule.verify_agent,
                "escalate": rule.escalate,
            }
            for rule in policy.rules
        ],
    }


def _seconds(waittime: str) -> int | None:
    wait = waits.parse(waittime)
    return None if wait is None else int(wait.total_seconds())


class Policies(base.Lists[Revision]):
    """The policies in force, by name. Everyone with a role may read them: they hold for every cluster."""

    queryset = Revision.objects.all()
    serializer_class = PolicySerializer
    filterset_class = PolicyFilter
    pagination_class = paging.ByName
    parser_classes = PARSERS
    lookup_url_kwarg = "name"

    def get_queryset(self) -> QuerySet[Revision]:
        """Not narrowed by cluster."""
        return queries.in_force().annotate(name=F("policy__name"))

    @extend_schema(
        request={**REQUEST, "application/json": TextBody},
        parameters=[REASON, KEY],
        responses={200: PolicySerializer(many=True)},
        filters=False,
    )
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Puts every policy of the text in force, or none of them."""
        base.known_only(request, ("reason",))
        require(request, base.ADMIN, None)
        body = _text_of(request)
        applied = services.apply(body["text"], author=_author(request), reason=body["reason"], now=timezone.now())
        names = [policy.name for policy in applied if policy.kind == queries.RESCUE]
        rows = {row.policy.name: row for row in self.get_queryset().filter(policy__name__in=names)}
        return Response(PolicySerializer([rows[name] for name in names], many=True).data)

    def retrieve(self, request: Request, name: str) -> Response:
        """One policy in force, with its ETag."""
        base.known_only(request)
        return self._answer(name)

    @extend_schema(
        request={**REQUEST, "application/json": TextBody},
        parameters=[REASON, IF_MATCH, IF_NONE_MATCH],
        responses={200: PolicySerializer, 201: PolicySerializer},
    )
    def update(self, request: Request, name: str) -> Response:
        """Puts this one policy in force: 201 when there was none of its name, 412 when another revision is in force."""
        base.known_only(request, ("reason",))
        require(request, base.ADMIN, None)
        body = _text_of(request)
        existed = self.get_queryset().filter(policy__name=name).exists()
        services.apply(
            body["text"],
            author=_author(request),
            reason=body["reason"],
            now=timezone.now(),
            name=name,
            expected=_expected(request, exists=existed),
        )
        return self._answer(name, status=200 if existed else 201)

    @extend_schema(parameters=[REASON, IF_MATCH], responses={204: None})
    def destroy(self, request: Request, name: str) -> Response:
        """Takes a policy out of force; its revisions stay, plans under way go on."""
        base.known_only(request, ("reason",))
        require(request, base.ADMIN, None)
        services.delete(
            name,
            author=_author(request),
            reason=_reason(request),
            now=timezone.now(),
            expected=_expected(request, exists=True),
        )
        return Response(status=204)

    @extend_schema(request=RollbackBody, parameters=[IF_MATCH, KEY], responses={200: PolicySerializer})
    @idempotency.once
    def rollback(self, request: Request, name: str) -> Response:
        """Puts an earlier revision's text in force again, as a new revision."""
        base.known_only(request)
        require(request, base.ADMIN, None)
        body = base.body_of(request, RollbackBody)
        services.rollback(
            name,
            body["revision"],
            author=_author(request),
            reason=body["reason"],
            now=timezone.now(),
            expected=_expected(request, exists=True),
        )
        return self._answer(name)

    def _answer(self, name: str, *, status: int = 200) -> Response:
        row = get_object_or_404(self.get_queryset(), policy__name=name)
        return Response(PolicySerializer(row).data, status=status, headers={"ETag": f'"{row.number}"'})


class Revisions(base.Lists[Revision]):
    """A policy's revisions, newest first, also of one that is no longer in force."""

    queryset = Revision.objects.all()
    serializer_class = RevisionSerializer

    def get_queryset(self) -> QuerySet[Revision]:
        """Those of the policy that the address names."""
        if getattr(self, "swagger_fake_view", False):
            return Revision.objects.none()
        policy = get_object_or_404(Policy, name=self.kwargs["name"])
        return Revision.objects.filter(policy=policy)


class Validate(base.Acts):
    """What the portal makes of a text, without applying it."""

    parser_classes = PARSERS

    @extend_schema(
        operation_id="policies_validate",
        request={**REQUEST, "application/json": TextBody},
        responses={200: ValidSerializer},
    )
    def post(self, request: Request) -> Response:
        """The policies as understood and what may surprise; 422 with every mistake's line and column."""
        base.known_only(request)
        reading = services.validate(_text_of(request)["text"])
        if reading.problems:
            return problems.unreadable(reading.problems)
        return Response(
            {
                "valid": True,
                "policies": [parsed(one.policy) for one in reading.policies],
                "warnings": [asdict(warning) for warning in reading.warnings],
            }
        )


def _text_of(request: Request) -> dict[str, Any]:
    """The text and the reason, from JSON or from a body that is the text; raises Unprocessable, ValidationError."""
    if isinstance(request.data, dict) and isinstance(request.data.get("text"), bytes):
        text, reason = request.data["text"], _reason(request)
    elif not request.data:
        text, reason = "", _reason(request)
    else:
        body = base.body_of(request, TextBody)
        text, reason = body["text"], body["reason"] or _reason(request)
        size = len(text.encode())
        if size > source.MAX_BYTES:
            raise parsing.TooLarge(f"text has {size} bytes: at most {source.MAX_BYTES} are read.")
    if not text.strip():
        raise problems.Unprocessable(
            'The body is empty: send the policies as YAML (Content-Type: application/yaml), or as JSON {"text": "..."}.'
        )
    return {"text": text, "reason": reason}


def _reason(request: Request) -> str:
    reason = str(request.query_params.get("reason", ""))
    if len(reason) > base.REASON:
        raise exceptions.ValidationError({"reason": [f"At most {base.REASON} characters."]})
    return reason


def _author(request: Request) -> str:
    return accounts.actor(principal(request))


def _expected(request: Request, *, exists: bool) -> int | None:
    """The revision number that must be in force, from ``If-Match`` or ``If-None-Match``; None: whichever."""
    wanted = request.headers.get("If-Match")
    if request.headers.get("If-None-Match") is not None:
        if request.headers["If-None-Match"].strip() != "*":
            raise exceptions.ValidationError({"If-None-Match": ["Write *, for a policy that must be new."]})
        return 0
    if wanted is None:
        return None
    if wanted.strip() == "*":
        if not exists:
            raise problems.PreconditionFailed("There is no such policy in force.")
        return None
    tag = ETAG.fullmatch(wanted.strip())
    if tag is None:
        raise problems.PreconditionFailed(f"If-Match {wanted} is no ETag of a policy: it is a revision's number.")
    return int(tag[1])
