"""Packs of policies over REST: what each would install, and their installation."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts.models import Verb
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.policies import documents, schemas, views
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import services
from kcover_portal.policies.services import shipped

MODE = OpenApiParameter("mode", str, enum=shipped.MODES, description="the mode of every rule; default shadow")


class PackSerializer(serializers.Serializer[Any]):
    """A pack as it would be installed. ``installed``: its active policies. ``changes``: what would become of each."""

    name = serializers.CharField()
    mode = serializers.CharField()
    installed = serializers.ListField(child=serializers.CharField())
    changes = serializers.DictField(child=serializers.ChoiceField(shipped.CHANGES))
    policies = schemas.ParsedSerializer(many=True)


class OnePackSerializer(PackSerializer):
    """A pack with its text, which ``POST /policies/try`` and ``POST /policies`` accept."""

    text = serializers.CharField()


class PacksSerializer(serializers.Serializer[Any]):
    """All packs."""

    results = PackSerializer(many=True)


class Packs(base.ActionView):
    """The packs that come with the portal."""

    @extend_schema(operation_id="policies_packs", parameters=[MODE], responses={200: PacksSerializer})
    def get(self, request: Request) -> Response:
        """Returns what each pack would install."""
        return Response({"results": [_shown(pack) for pack in _packs(request, tuple(shipped.PACKS))]})


class OnePack(base.ActionView):
    """One pack."""

    @extend_schema(operation_id="policies_packs_read", parameters=[MODE], responses={200: OnePackSerializer})
    def get(self, request: Request, name: str) -> Response:
        """Returns what the pack would install, with its text."""
        (pack,) = _packs(request, (name,))
        return Response({**_shown(pack), "text": pack.text})


def _packs(request: Request, names: tuple[str, ...]) -> list[services.Pack]:
    """Raises FieldError for an unknown mode, NotFound for an unknown pack."""
    base.known_only(request, ("mode",))
    try:
        return services.packs(request.query_params.get("mode", services.FIRST_MODE), names=names)
    except services.UnknownPack as error:
        if error.field == "pack":
            raise http_errors.NotFound(reasons.of("not_found")) from error
        raise FieldError(error.field, error.reason) from error


def _shown(pack: services.Pack) -> dict[str, Any]:
    return {
        "name": pack.name,
        "mode": pack.mode,
        "installed": list(pack.installed),
        "changes": dict(pack.changes),
        "policies": [schemas.parsed(policy) for policy in pack.policies],
    }


class Install(base.ActionView):
    """Publishes a pack of policies that comes with the portal."""

    @extend_schema(
        operation_id="policies_install",
        request=documents.InstallBody,
        parameters=[documents.KEY],
        responses={200: schemas.SavedSerializer(many=True)},
    )
    @idempotency.once
    def post(self, request: Request) -> Response:
        """Publishes the pack with every rule in ``mode``, and returns its policies. 422 for an unknown pack or mode."""
        base.known_only(request)
        require(request, Verb.WRITE_POLICIES, None)
        step_up(request)
        body = base.body_of(request, documents.InstallBody)
        try:
            warnings = services.validate(services.pack_text(body["pack"], body["mode"])).warnings
        except services.UnknownPack as error:
            raise FieldError(error.field, error.reason) from error
        applied = services.install_pack(
            body["pack"],
            body["mode"],
            author=documents.author_of(request),
            reason=body["reason"],
            now=timezone.now(),
        )
        return views.saved(applied, warnings)
