"""Saved views of the console's lists: a person's own, and those that others share."""

from http import HTTPStatus
from typing import Any

import django_filters as filters
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import ApiToken, SavedView, SharedFirstView, User, Verb
from kcover_portal.accounts.services import saved_views
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.idempotency import once
from kcover_portal.api.permissions import require, require_somewhere
from kcover_portal.api.v1 import base

DRY_RUN = OpenApiParameter("dry_run", bool, description="check the view and return it without saving it")


class ViewSerializer(serializers.ModelSerializer[SavedView]):
    """A query of a list under a name. ``opens_first``: the caller's list opens with it, also with somebody else's."""

    owner = serializers.CharField(source="user.username", read_only=True)
    own = serializers.SerializerMethodField()
    opens_first = serializers.SerializerMethodField(help_text="the caller's list opens with it")

    class Meta:
        model = SavedView
        fields = ("id", "listing", "name", "query", "shared", "opens_first", "owner", "own", "created_at")

    def get_own(self, row: SavedView) -> bool:
        return bool(row.user_id == self.context["person"])

    def get_opens_first(self, row: SavedView) -> bool:
        if row.user_id == self.context["person"]:
            return row.opens_first
        return row.pk in self.context["first"]


class ViewPatch(base.StrictSerializer):
    """The fields to change; omitted fields stay unchanged."""

    name = serializers.CharField(max_length=60, required=False)
    shared = serializers.BooleanField(required=False)
    opens_first = serializers.BooleanField(required=False)


class ViewBody(base.StrictSerializer):
    """A new view."""

    listing = serializers.CharField(max_length=40, help_text="the list's name, as exports have it, such as nodes")
    name = serializers.CharField(max_length=60)
    query = serializers.CharField(
        max_length=saved_views.MAX_QUERY, allow_blank=True, help_text="the page's query string: filters, order, columns"
    )
    shared = serializers.BooleanField(required=False, default=False)
    opens_first = serializers.BooleanField(required=False, default=False)


class ViewFilter(filters.FilterSet):
    """Views by list."""

    listing = filters.CharFilter(label=_("List"))
    shared = filters.BooleanFilter(label=_("Shared"))

    class Meta:
        model = SavedView
        fields: tuple[str, ...] = ()


class Views(base.ReadViewSet[SavedView]):
    """The caller's own views and those that active people share. A token stands for its owner."""

    queryset = SavedView.objects.all()
    serializer_class = ViewSerializer
    filterset_class = ViewFilter

    def get_queryset(self) -> QuerySet[SavedView]:
        """Returns the views that the caller sees."""
        rows = SavedView.objects.select_related("user")
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        return rows.filter(Q(user=queries.owner_of(principal(self.request))) | Q(shared=True, user__is_active=True))

    def get_serializer_context(self) -> dict[str, Any]:
        """Adds the key of the person, and the views of others with which lists open for them."""
        if getattr(self, "swagger_fake_view", False):
            return {**super().get_serializer_context(), "person": None, "first": ()}
        person = queries.owner_of(principal(self.request))
        first = SharedFirstView.objects.filter(user=person).values_list("view", flat=True) if person else ()
        return {**super().get_serializer_context(), "person": person.pk if person else None, "first": set(first)}

    @extend_schema(parameters=[DRY_RUN], request=ViewBody, responses={200: ViewSerializer, 201: ViewSerializer})
    @once
    def create(self, request: Request) -> Response:
        """Saves a view (201), or with ``dry_run`` returns it (200). 422 for a parameter that the list does not have.

        Sharing requires the right to repair nodes everywhere: everybody can read the names in a shared query.
        """
        base.known_only(request, ("dry_run",))
        person = _person(request)
        body: dict[str, Any] = base.body_of(request, ViewBody)
        body["query"] = saved_views.checked_query(person, body["listing"], body["query"])
        if body["shared"]:
            _require_share(request)
        if base.flag(request, "dry_run"):
            saved_views.check_name(person, body["listing"], body["name"])
            return self._shown(SavedView(user=person, created_at=timezone.now(), **body), HTTPStatus.OK)
        return self._shown(saved_views.save(person, now=timezone.now(), **body), HTTPStatus.CREATED)

    @extend_schema(request=ViewPatch, responses=ViewSerializer)
    def partial_update(self, request: Request, pk: int) -> Response:
        """Renames a view of one's own, shares it, or makes the list open with it.

        Of a view that somebody else shares, only ``opens_first`` can be set: for the caller's own list.
        """
        base.known_only(request)
        body: dict[str, Any] = base.body_of(request, ViewPatch)
        if body.keys() == {"opens_first"} and (others := self._of_others(request, pk)) is not None:
            saved_views.open_with(_person(request), others, opens_first=body["opens_first"])
            return self._shown(others, HTTPStatus.OK)
        row = self._own(request, pk)
        if body.get("shared") and not row.shared:
            _require_share(request)
        fields = {name: body.get(name, getattr(row, name)) for name in ("name", "shared", "opens_first")}
        saved_views.change(row, now=timezone.now(), **fields)
        return self._shown(row, HTTPStatus.OK)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Deletes a view of one's own."""
        base.known_only(request)
        saved_views.delete(self._own(request, pk), now=timezone.now())
        return Response(status=HTTPStatus.NO_CONTENT)

    @extend_schema(operation_id="views_withdraw", request=None, responses=ViewSerializer)
    @once
    def withdraw(self, request: Request, pk: int) -> Response:
        """Stops sharing somebody's view; its owner keeps it. Requires an admin of all clusters."""
        base.known_only(request)
        require(request, Verb.ADMINISTER, None)
        row = get_object_or_404(SavedView.objects.select_related("user"), pk=pk, shared=True)
        saved_views.withdraw(row, actor=queries.actor(principal(request)), now=timezone.now())
        row.refresh_from_db()
        return self._shown(row, HTTPStatus.OK)

    def _own(self, request: Request, pk: int) -> SavedView:
        return get_object_or_404(SavedView.objects.select_related("user"), pk=pk, user=_person(request))

    def _of_others(self, request: Request, pk: int) -> SavedView | None:
        return saved_views.shared_by_others(_person(request)).select_related("user").filter(pk=pk).first()

    def _shown(self, row: SavedView, status: HTTPStatus) -> Response:
        return Response(self.get_serializer(row).data, status=status)


def _person(request: Request) -> User:
    """Returns the person whose views are changed. A token needs an owner and a right to change anything."""
    who = principal(request)
    person = queries.owner_of(who)
    if person is None:
        raise http_errors.Forbidden(reasons.of("view_of_person"))
    if isinstance(who, ApiToken):
        require_somewhere(request, Verb.REPAIR)
    return person


def _require_share(request: Request) -> None:
    """Raises Forbidden. A token may be narrower than its owner, whose right the service checks."""
    require(request, Verb.REPAIR, None)
