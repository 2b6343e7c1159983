"""Roles: the built-in ones, and custom ones as sets of verbs. Requires the verb ``administer`` for all clusters."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import VERBS_OF, CustomRole, Verb
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base


class RoleSerializer(serializers.Serializer[Any]):
    """A role. Built-in roles cannot be changed."""

    name = serializers.CharField()
    verbs = serializers.ListField(child=serializers.ChoiceField(Verb.choices))
    built_in = serializers.BooleanField()


class VerbsBody(base.StrictSerializer):
    """The verbs of a role."""

    verbs = serializers.ListField(child=serializers.ChoiceField(Verb.choices), min_length=1, max_length=len(Verb))


class RoleBody(VerbsBody):
    """A new role."""

    name = serializers.CharField(max_length=60)


class Roles(base.ActionView):
    """All roles."""

    @extend_schema(operation_id="roles_list", responses={200: RoleSerializer(many=True)})
    def get(self, request: Request) -> Response:
        """Lists the roles, the built-in ones first."""
        base.known_only(request)
        require(request, Verb.ADMINISTER, None)
        rows = [_shown(name, verbs, built_in=True) for name, verbs in VERBS_OF.items()]
        return Response([*rows, *(_shown(role.name, role.verbs) for role in CustomRole.objects.all())])

    @extend_schema(operation_id="roles_create", request=RoleBody, responses={201: RoleSerializer})
    def post(self, request: Request) -> Response:
        """Creates a role. It can contain no more than its maker holds in all clusters."""
        base.known_only(request)
        require(request, Verb.ADMINISTER, None)
        body, who = base.body_of(request, RoleBody), principal(request)
        step_up(request)
        role = services.make_role(body["name"], body["verbs"], giver=who, actor=queries.actor(who), now=timezone.now())
        return Response(_shown(role.name, role.verbs), status=201)


class Role(base.ActionView):
    """One custom role."""

    @extend_schema(operation_id="roles_update", request=VerbsBody, responses={200: RoleSerializer})
    def patch(self, request: Request, name: str) -> Response:
        """Changes what the role contains, at once for everybody who has it."""
        base.known_only(request)
        require(request, Verb.ADMINISTER, None)
        role, who = get_object_or_404(CustomRole, name=name), principal(request)
        verbs = base.body_of(request, VerbsBody)["verbs"]
        step_up(request)
        role = services.change_role(role, verbs, giver=who, actor=queries.actor(who), now=timezone.now())
        return Response(_shown(role.name, role.verbs))

    @extend_schema(operation_id="roles_delete", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Deletes a role that nobody has."""
        base.known_only(request)
        require(request, Verb.ADMINISTER, None)
        role = get_object_or_404(CustomRole, name=name)
        services.delete_role(role, actor=queries.actor(principal(request)), now=timezone.now())
        return Response(status=204)


def _shown(name: str, verbs: Any, *, built_in: bool = False) -> dict[str, Any]:
    return {"name": name, "verbs": [verb for verb in Verb.values if verb in verbs], "built_in": built_in}
