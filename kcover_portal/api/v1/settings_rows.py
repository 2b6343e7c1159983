"""Rows that people set, over REST: bodies and views, made from the declaration of their kind."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, TypeVar

from django.db.models import Model, QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.api import pagination
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.lib.errors import FieldError
from kcover_portal.settings_rows import (
    MAX_NAME,
    Choice,
    Column,
    Flag,
    Number,
    Options,
    Pairs,
    Person,
    Recipients,
    Resource,
    Several,
    Text,
)

Row = TypeVar("Row", bound=Model)
MAX_CLUSTER, MAX_PERSON = 100, 150  # characters


def new_body(
    resource: Resource[Any], name: str, text: str, *, of: type[base.StrictSerializer] = base.StrictSerializer
) -> type[base.StrictSerializer]:
    """The body of a new row. ``name`` and ``text`` are what the schema says about it; ``of``: what it extends."""
    fields: dict[str, serializers.Field[Any, Any, Any, Any]] = {"name": serializers.CharField(max_length=MAX_NAME)}
    if resource.kinds:
        fields["kind"] = serializers.ChoiceField(resource.model._meta.get_field("kind").choices)
    if resource.has_cluster:
        fields["cluster"] = serializers.CharField(max_length=MAX_CLUSTER)
    making = {column.name: _field(column, default=column.initial) for column in resource.making}
    return type(name, (of,), {"__doc__": text, **fields, **_fields(resource), **making})


def change_body(resource: Resource[Any], name: str, text: str) -> type[base.StrictSerializer]:
    """The body of a change: the settings to change, and the reason."""
    return type(name, (base.ActSerializer,), {"__doc__": text, **_fields(resource)})


def _fields(resource: Resource[Any]) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    return {column.name: _field(column) for column in resource.columns}


def _field(column: Column, **more: Any) -> serializers.Field[Any, Any, Any, Any]:
    """The field of a body: what is left out stays as it is."""
    shared: dict[str, Any] = {"required": False, **({"help_text": column.help} if column.help else {}), **more}
    match column:
        case Text():
            return serializers.CharField(max_length=column.most, allow_blank=column.blank, **shared)
        case Flag():
            return serializers.BooleanField(**shared)
        case Number():
            return serializers.IntegerField(min_value=0, max_value=column.most, allow_null=column.null, **shared)
        case Choice():
            return serializers.ChoiceField(column.choices, **shared)
        case Several():
            one = serializers.ChoiceField(sorted(name for name, _label in column.choices))
            return serializers.ListField(child=one, min_length=1, max_length=column.most, **shared)
        case Recipients():
            return serializers.ListField(child=serializers.EmailField(), max_length=column.most, **shared)
        case Person():
            return serializers.CharField(allow_null=True, max_length=MAX_PERSON, **shared)
        case Pairs():
            return serializers.DictField(**shared)
        case Options():
            return serializers.DictField(child=serializers.CharField(allow_blank=True), **shared)
    raise TypeError(f"no body has a field for {type(column).__name__}")


class SettingsViewSet(base.ReadViewSet[Row]):
    """Rows by name, for those with the right of their kind; those of a cluster are shown to all who see the cluster.

    Making and changing require a fresh second factor. There is no idempotency key, because a secret must not be stored
    for comparison. A subclass names its ``resource``, both bodies, and what the schema says of the acts.
    """

    pagination_class = pagination.ByName
    lookup_field = "name"
    node_field = None
    resource: ClassVar[Resource[Any]]
    body_of_new: ClassVar[type[base.StrictSerializer]]
    body_of_change: ClassVar[type[base.StrictSerializer]]
    of_create: ClassVar[str]
    of_change: ClassVar[str] = "Changes the named settings, all or none."
    of_delete: ClassVar[str]

    def __init_subclass__(cls, **more: Any) -> None:
        """Describes the acts in the schema."""
        super().__init_subclass__(**more)
        cls.queryset = cls.resource.rows()
        shown = cls.serializer_class
        extend_schema_view(
            create=extend_schema(request=cls.body_of_new, responses={201: shown}, description=cls.of_create),
            partial_update=extend_schema(request=cls.body_of_change, responses={200: shown}, description=cls.of_change),
            destroy=extend_schema(responses={204: None}, description=cls.of_delete),
        )(cls)

    def get_queryset(self) -> QuerySet[Row]:
        """Returns the rows. Raises Forbidden unless the caller may see them."""
        if self.resource.has_cluster:
            return super().get_queryset()
        rows: QuerySet[Row] = self.resource.rows()
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        require(self.request, Verb(self.resource.verb), None)
        return rows

    def create(self, request: Request) -> Response:
        """Creates a row."""
        base.known_only(request)
        if not self.resource.has_cluster:
            require(request, Verb(self.resource.verb), None)
        given = base.body_of(request, self.body_of_new)
        fixed: dict[str, Any] = {name: given.pop(name) for name in ("name", "kind") if name in given}
        if self.resource.has_cluster:
            fixed["cluster"] = base.cluster_named(request, given.pop("cluster"))
            require(request, Verb(self.resource.verb), fixed["cluster"])
        given.pop("reason", None)
        given = self._read(given)
        self._require_more(request, given, None)
        step_up(request)
        row = self.resource.make(self.resource.model(**fixed), given, actor=_actor(request), now=timezone.now())
        return Response(self.get_serializer(row).data, status=HTTPStatus.CREATED)

    def partial_update(self, request: Request, name: str) -> Response:
        """Changes a row."""
        base.known_only(request)
        row = self._row(request)
        given = base.body_of(request, self.body_of_change)
        reason = given.pop("reason")
        given = self._read(given)
        self._require_more(request, given, row)
        step_up(request)
        changed = self.resource.change(row, given, actor=_actor(request), reason=reason, now=timezone.now())
        return Response(self.get_serializer(changed).data)

    def destroy(self, request: Request, name: str) -> Response:
        """Deletes a row."""
        base.known_only(request)
        row = self._row(request)
        step_up(request)
        self.resource.delete(row, actor=_actor(request), now=timezone.now())
        return Response(status=HTTPStatus.NO_CONTENT)

    def _require_more(self, request: Request, given: Mapping[str, Any], row: Row | None) -> None:
        for verb in self.resource.more_verbs(given, row):
            require(request, Verb(verb), getattr(row, "cluster", None))

    def _row(self, request: Request) -> Row:
        """The row, for a caller who may set it. Raises Http404 and Forbidden."""
        row: Any = self.get_object()
        if self.resource.has_cluster:
            require(request, Verb(self.resource.verb), row.cluster)
        found: Row = row
        return found

    def _read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, with people instead of their names. Raises FieldError."""
        people = {column.name for column in self.resource.columns if isinstance(column, Person)}
        return {name: _person(name, value) if name in people else value for name, value in given.items()}


def _person(field: str, name: str | None) -> User | None:
    if not name:
        return None
    person = User.objects.filter(username=name, is_active=True).first()
    if person is None:
        raise FieldError(field, reasons.of("unknown_user", user=name))
    return person


def _actor(request: Request) -> str:
    return accounts.actor(principal(request))
