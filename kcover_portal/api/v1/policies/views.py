"""Publish, read, compare and roll back policies of both kinds. ``ETag`` is the number of the active revision."""

from dataclasses import asdict
from typing import Any

import django_filters as filters
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts.models import Verb
from kcover_portal.api import http_errors, idempotency, pagination, problems
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.policies import documents, schemas
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.policies.services import yaml_reader
from kcover_portal.runtime.services import concurrency_limits

FROM = OpenApiParameter("from", int, description="the earlier revision; default: the one before", required=False)
TO = OpenApiParameter("to", int, description="the later revision; default: the active one", required=False)


class PolicyFilter(filters.FilterSet):
    """Policies by content, or the disabled ones."""

    q = filters.CharFilter(method="search", label=_("Search"))
    archived = filters.BooleanFilter(method="keep", label=_("Archived"))

    class Meta:
        model = Revision
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Revision], name: str, value: str) -> QuerySet[Revision]:
        """Keeps policies whose text contains the words."""
        return rows.filter(text__icontains=value)

    def keep(self, rows: QuerySet[Revision], name: str, value: bool) -> QuerySet[Revision]:
        """Returns the rows unchanged, because the view itself selects the disabled policies."""
        return rows


class Policies(base.ListViewSet[Revision]):
    """The active RescuePolicies by name. They apply to all clusters, so everyone with a role may read them."""

    kind = queries.RESCUE
    queryset = Revision.objects.all()
    serializer_class = schemas.PolicySerializer
    filterset_class = PolicyFilter
    pagination_class = pagination.ByName
    parser_classes = documents.PARSERS
    lookup_url_kwarg = "name"

    def get_queryset(self) -> QuerySet[Revision]:
        """Returns policies of all clusters; with ``archived``, the last revisions of the disabled ones."""
        out = self.action == "list" and self.request.query_params.get("archived", "").lower() in ("true", "1")
        return (queries.archived if out else queries.in_force)(self.kind).annotate(name=F("policy__name"))

    @extend_schema(
        request={**documents.REQUEST, "application/json": documents.TextBody},
        parameters=[documents.REASON, documents.KEY],
        responses={200: schemas.SavedSerializer(many=True)},
        filters=False,
    )
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Publishes all policies of the text, of either kind, or none."""
        base.known_only(request, ("reason",))
        require(request, Verb.WRITE_POLICIES, None)
        step_up(request)
        body = documents.text_of(request)
        warnings = services.validate(body["text"]).warnings
        applied = services.apply(
            body["text"], author=documents.author_of(request), reason=body["reason"], now=timezone.now()
        )
        return saved(applied, warnings)

    def retrieve(self, request: Request, name: str) -> Response:
        """Returns an active policy, with its ETag."""
        base.known_only(request)
        return self._answer(name)

    @extend_schema(
        request={**documents.REQUEST, "application/json": documents.TextBody},
        parameters=[documents.REASON, documents.IF_MATCH, documents.IF_NONE_MATCH],
        responses={200: schemas.SavedSerializer, 201: schemas.SavedSerializer},
    )
    def update(self, request: Request, name: str) -> Response:
        """Publishes this policy. 201 if it was not active before, 412 if another revision is active."""
        base.known_only(request, ("reason",))
        require(request, Verb.WRITE_POLICIES, None)
        step_up(request)
        body = documents.text_of(request)
        warnings = services.validate(body["text"]).warnings
        existed = self.get_queryset().filter(policy__name=name).exists()
        services.apply(
            body["text"],
            author=documents.author_of(request),
            reason=body["reason"],
            now=timezone.now(),
            name=name,
            kind=self.kind,
            expected=documents.expected(request, exists=existed),
        )
        return self._answer(name, status=200 if existed else 201, warnings=warnings)

    @extend_schema(parameters=[documents.REASON, documents.IF_MATCH], responses={204: None})
    def destroy(self, request: Request, name: str) -> Response:
        """Disables a policy. Its revisions are kept, and rescues in progress continue."""
        base.known_only(request, ("reason",))
        require(request, Verb.WRITE_POLICIES, None)
        step_up(request)  # a rule of lower priority may then apply, with a looser mode
        services.delete(
            name,
            author=documents.author_of(request),
            reason=documents.reason_of(request),
            now=timezone.now(),
            kind=self.kind,
            expected=documents.expected(request, exists=True),
        )
        return Response(status=204)

    @extend_schema(
        request=documents.RollbackBody,
        parameters=[documents.IF_MATCH, documents.KEY],
        responses={200: schemas.PolicySerializer},
    )
    @idempotency.once
    def rollback(self, request: Request, name: str) -> Response:
        """Publishes an earlier revision's text as a new revision, also for a disabled policy."""
        base.known_only(request)
        require(request, Verb.WRITE_POLICIES, None)
        step_up(request)
        body = base.body_of(request, documents.RollbackBody)
        services.rollback(
            name,
            body["revision"],
            author=documents.author_of(request),
            reason=body["reason"],
            now=timezone.now(),
            kind=self.kind,
            expected=documents.expected(request, exists=True),
        )
        return self._answer(name)

    @extend_schema(parameters=[FROM, TO], responses={200: schemas.DifferenceSerializer}, filters=False)
    def difference(self, request: Request, name: str) -> Response:
        """Returns the differences between two revisions, as a unified diff and as values."""
        base.known_only(request, ("from", "to"))
        policy = get_object_or_404(Policy, kind=self.kind, name=name)
        new = _number(request, "to")
        before = policy.revisions.filter(number__lt=new or policy.revision).first()
        old = _number(request, "from") or (before.number if before else new or policy.revision)
        earlier, later = services.two_revisions(name, old, new, kind=self.kind)
        return Response(_difference(services.compare_revisions(earlier, later), earlier.number, later.number))

    @extend_schema(
        request={**documents.REQUEST, "application/json": documents.TextBody},
        responses={200: schemas.DifferenceSerializer},
        filters=False,
    )
    def proposal(self, request: Request, name: str) -> Response:
        """Returns what the text would change in the active policy. 422 with the line of each error."""
        base.known_only(request)
        row = get_object_or_404(self.get_queryset(), policy__name=name)
        text = documents.text_of(request)["text"]
        with base.place(request, concurrency_limits.VALIDATIONS):
            validated = services.validate(text)
        if validated.problems:
            return problems.unreadable(validated.problems)
        matching = [item for item in validated.policies if item.key == (self.kind, name)]
        if not matching:
            raise http_errors.Unprocessable(reasons.of("policy_missing", policy=name))
        names = (f"{name} revision {row.number}", "the text")
        changed = services.compare((row.text, row.document), (matching[0].text, matching[0].document), names=names)
        return Response(_difference(changed, row.number, None))

    def _answer(
        self, name: str, *, status: int = 200, warnings: tuple[yaml_reader.Problem, ...] | None = None
    ) -> Response:
        row = get_object_or_404(self.get_queryset(), policy__name=name)
        serializer = schemas.PolicySerializer(row)
        if warnings is not None:
            serializer = schemas.SavedSerializer(row, context={"warnings": warnings})
        return Response(serializer.data, status=status, headers={"ETag": f'"{row.number}"'})


class StandbyPolicies(Policies):
    """The active WarmStandbyPolicy. A second one under another name is rejected."""

    kind = queries.STANDBY


class Revisions(base.ListViewSet[Revision]):
    """The revisions of a policy, newest first, also of a disabled one."""

    kind = queries.RESCUE
    queryset = Revision.objects.all()
    serializer_class: type[serializers.BaseSerializer[Revision]] = schemas.RevisionSerializer

    def get_queryset(self) -> QuerySet[Revision]:
        """Returns the revisions of the policy in the path."""
        if getattr(self, "swagger_fake_view", False):
            return Revision.objects.none()
        return Revision.objects.filter(policy=get_object_or_404(Policy, kind=self.kind, name=self.kwargs["name"]))


class StandbyRevisions(Revisions):
    """The revisions of a WarmStandbyPolicy."""

    kind = queries.STANDBY


class Validate(base.ActionView):
    """Parses and validates a text without applying it."""

    parser_classes = documents.PARSERS

    @extend_schema(
        operation_id="policies_validate",
        request={**documents.REQUEST, "application/json": documents.TextBody},
        responses={200: schemas.ValidSerializer},
    )
    def post(self, request: Request) -> Response:
        """Returns the parsed policies and warnings. 422 with the line and column of each error."""
        base.known_only(request)
        text = documents.text_of(request)["text"]
        with base.place(request, concurrency_limits.VALIDATIONS):
            validated = services.validate(text)
        if validated.problems:
            return problems.unreadable(validated.problems)
        return Response(
            {
                "valid": True,
                "policies": [schemas.parsed(item.policy) for item in validated.policies],
                "warnings": [warning.to_json() for warning in validated.warnings],
            }
        )


def saved(applied: list[Policy], warnings: tuple[yaml_reader.Problem, ...]) -> Response:
    """Returns the active revisions of the policies, in this order."""
    rows = Revision.objects.filter(policy__in=applied, number=F("policy__revision")).select_related("policy")
    found = {row.policy_id: row for row in rows}
    saved = [found[policy.pk] for policy in applied]
    return Response(schemas.SavedSerializer(saved, many=True, context={"warnings": warnings}).data)


def _number(request: Request, name: str) -> int | None:
    """Returns a revision number from the query. Raises FieldError."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise FieldError(name, reasons.of("revision_not_a_number"))
    return int(text)


def _difference(found: services.Difference, old: int, new: int | None) -> dict[str, Any]:
    changes = [asdict(change) for change in found.changes]
    return {"from": old, "to": new, "unified": "\n".join(found.lines), "changes": changes}
