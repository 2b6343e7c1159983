"""Base classes of the views: visibility by cluster, strict input, the schema."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any, ClassVar, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from kcover import reasons
from kcover.values.quote import short_repr, short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role
from kcover_portal.api import http_errors, pagination, query_params
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1.schema import Schema
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError, FieldErrors
from kcover_portal.runtime.services import concurrency_limits

Row = TypeVar("Row", bound=Model)
MAX_REASON_CHARACTERS = 500  # as in the database
MAX_SEARCH_CHARACTERS = 100


class StrictSerializer(serializers.Serializer[Any]):
    """A request body that rejects unknown keys. ``aliases``: other names of fields, such as those of the answer."""

    aliases: ClassVar[dict[str, str]] = {}

    def to_internal_value(self, data: Any) -> Any:
        """Validates the body. Raises FieldErrors for unknown keys, ValidationError for invalid values."""
        if isinstance(data, dict):
            meant = {key: self.aliases.get(key, key) for key in data}
            data = {meant[key] if meant[key] not in data else key: value for key, value in data.items()}
            unknown = [FieldError(key, reasons.of("unknown_field")) for key in data if key not in self.fields]
            if unknown:
                raise FieldErrors(unknown)
        return super().to_internal_value(data)


class ActSerializer(StrictSerializer):
    """The reason for an action."""

    reason = serializers.CharField(required=False, allow_blank=True, max_length=MAX_REASON_CHARACTERS, default="")


class ProgressSerializer(serializers.Serializer[Any]):
    """The part of a job that workers have done."""

    done = serializers.IntegerField()
    total = serializers.IntegerField()


class ListViewSet(ListModelMixin, GenericViewSet[Row]):
    """A read-only list of rows that the caller may see."""

    schema = Schema()
    filter_backends = (query_params.StrictFilterBackend,)
    pagination_class = pagination.NewestFirst
    cluster_field = "cluster"  # the path from a row to its cluster
    node_field: str | None = "node"  # the path to its node; "": the row is a node; None: it is not about one node

    def get_queryset(self) -> QuerySet[Row]:
        """Returns the visible rows."""
        rows = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        return accounts.visible(principal(self.request), rows, self.cluster_field, self.node_field)


class ReadViewSet(RetrieveModelMixin, ListViewSet[Row]):
    """A list, and each of its rows by id."""

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Returns one row."""
        query_params.refuse_unknown(request, ())
        return super().retrieve(request, *args, **kwargs)

    def get_object(self) -> Row:
        """Returns the row. Raises Http404 if it does not exist or is not visible."""
        return get_object_or_404(self.get_queryset(), **{self.lookup_field: self.kwargs[self.lookup_field]})


class ActionView(APIView):
    """A view that executes actions."""

    schema = Schema()


def body_of(request: Request, serializer: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """Returns the validated body. Raises FieldErrors or ValidationError."""
    return body_of_data(request.data, serializer)


def body_of_data(data: Any, serializer: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """Returns a validated part of a body. Raises FieldErrors or ValidationError."""
    parsed = serializer(data=data)
    parsed.is_valid(raise_exception=True)
    return dict(parsed.validated_data)


def flag(request: Request, name: str) -> bool:
    """Returns a boolean query parameter; default False. Raises FieldError for any other value."""
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise FieldError(name, reasons.of("not_a_flag", value=short_repr(text)))
    return text in ("true", "1")


def cluster_named(request: Request, name: str, *, field: str = "cluster") -> Cluster:
    """Returns a cluster that the caller may see as a whole. Raises FieldError."""
    cluster = accounts.clusters_of(principal(request)).filter(name=name).first()
    if cluster is None:
        raise FieldError(field, reasons.of("unknown_cluster", cluster=short_text(name)))
    return cluster


def place(
    request: Request, pool: concurrency_limits.ConcurrencyLimit
) -> AbstractContextManager[concurrency_limits.ConcurrencySlot]:
    """Holds one of the pool's places for the caller. Raises Busy, a 429."""
    return concurrency_limits.held(pool, accounts.place_key(principal(request)))


def known_only(request: Request, known: Collection[str] = ()) -> None:
    """Raises FieldErrors for query parameters other than the known ones."""
    query_params.refuse_unknown(request, known)


def choice(request: Request, name: str, known: Collection[str]) -> str:
    """The value of a query parameter that has choices; "" if it is not there. Raises FieldError for another one."""
    given = request.query_params.get(name, "")
    if given not in ("", *known):
        raise FieldError(name, reasons.of("parameter_not_choice", given=short_text(given), known=", ".join(known)))
    return given


def search_text(request: Request) -> str:
    """The parameter ``q``, as far as a search looks at it."""
    return request.query_params.get("q", "")[:MAX_SEARCH_CHARACTERS]


VIEWER, OPERATOR, APPROVER, ADMIN = Role.VIEWER.value, Role.OPERATOR.value, Role.APPROVER.value, Role.ADMIN.value


class UnknownPathView(APIView):
    """Returns a problem document for unknown paths."""

    schema = None
    permission_classes = ()

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        """Raises NotFound for every method."""
        raise http_errors.NotFound(reasons.of("unknown_endpoint", path=short_text(request.path)))
