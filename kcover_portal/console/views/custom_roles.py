"""Custom roles, and the roles of groups of the identity provider, for admins of all clusters."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count, QuerySet
from django.forms import BaseForm, Form
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import VERBS_OF, CustomRole, GroupMapping, Role, RoleBinding, Verb
from kcover_portal.accounts.services import oidc
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms import roles


def shown() -> dict[str, Any]:
    """The custom roles with the number of their uses, and the groups with their roles."""
    rows = CustomRole.objects.annotate(
        people=Count("bindings__user", distinct=True), groups=Count("mappings", distinct=True)
    )
    titles = dict(Role.choices)
    people = _uses(RoleBinding.objects.filter(custom=None), "user")
    groups = _uses(GroupMapping.objects.filter(custom=None), "pk")
    return {
        "roles": [(row, [Verb(verb) for verb in row.verbs]) for row in rows],
        "built_in": [
            (titles[name], [verb for verb in Verb if verb in held], people.get(name, 0), groups.get(name, 0))
            for name, held in VERBS_OF.items()
        ],
        "mappings": [
            (row, row.custom.name if row.custom else titles[row.role])
            for row in GroupMapping.objects.select_related("cluster", "custom").annotate(people=Count("members"))
        ],
        "single_sign_on": settings.KCOVER_OIDC is not None,
    }


def _uses(rows: QuerySet[Any], counted: str) -> dict[str, int]:
    """How many different people or groups have each built-in role."""
    return dict(rows.order_by().values_list("role").annotate(n=Count(counted, distinct=True)))


@require_http_methods(["GET", "POST"])
@signed_in
def new_role(request: Request) -> HttpResponse:
    require(request, Verb.ADMINISTER, None)
    form = roles.CustomRole(request.POST or None, offered=queries.verbs_in(request.user, None))

    def create(given: dict[str, Any], now: datetime) -> None:
        confirm(request)
        actor = queries.actor(request.user)
        services.make_role(given["name"], given["verbs"], giver=request.user, actor=actor, now=now)

    look = {"title": _("New role"), "verb": _("Create role"), "icon": "key"}
    return _act(request, form, create, page="role-new", **look)


@require_http_methods(["GET", "POST"])
@signed_in
def change_role(request: Request, name: str) -> HttpResponse:
    """Change what a role contains, at once for everybody who has it."""
    require(request, Verb.ADMINISTER, None)
    role = get_object_or_404(CustomRole, name=name)
    offered = queries.verbs_in(request.user, None) | frozenset(role.verbs)
    form = roles.CustomRole(request.POST or None, offered=offered, contains=role.verbs)

    def change(given: dict[str, Any], now: datetime) -> None:
        confirm(request)
        actor = queries.actor(request.user)
        services.change_role(role, given["verbs"], giver=request.user, actor=actor, now=now)

    look = {"title": _("Role %(name)s") % {"name": role.name}, "verb": _("Save"), "icon": "key"}
    text = _("The change applies at once to everybody who has this role.")
    return _act(request, form, change, page="role-change", args=(name,), text=text, **look)


@require_http_methods(["GET", "POST"])
@signed_in
def delete_role(request: Request, name: str) -> HttpResponse:
    require(request, Verb.ADMINISTER, None)
    role = get_object_or_404(CustomRole, name=name)

    def delete(_given: dict[str, Any], now: datetime) -> None:
        services.delete_role(role, actor=queries.actor(request.user), now=now)

    look = {"title": _("Delete role %(name)s") % {"name": role.name}, "verb": _("Delete"), "icon": "trash"}
    form = Form(request.POST if request.method == "POST" else None)
    return _act(request, form, delete, page="role-delete", args=(name,), grave=True, **look)


@require_http_methods(["GET", "POST"])
@signed_in
def map_group(request: Request) -> HttpResponse:
    """Give the members of a group a role."""
    require(request, Verb.ADMINISTER, None)
    form = roles.GroupRole(request.POST or None)

    def give(given: dict[str, Any], now: datetime) -> None:
        confirm(request)
        oidc.map_group(**given, giver=request.user, actor=queries.actor(request.user), now=now)

    text = _("Members get the role at their next sign-in. It replaces the role that the group has there.")
    look = {"title": _("Role of a group"), "verb": _("Save"), "icon": "users", "text": text}
    return _act(request, form, give, page="group-map", **look)


@require_http_methods(["GET", "POST"])
@signed_in
def unmap_group(request: Request, pk: int) -> HttpResponse:
    """Remove the role of a group; its members lose it at once."""
    require(request, Verb.ADMINISTER, None)
    mapping = get_object_or_404(GroupMapping.objects.select_related("cluster"), pk=pk)
    form = forms.Act(request.POST or None)

    def take(given: dict[str, Any], now: datetime) -> None:
        confirm(request)
        oidc.unmap_group(
            mapping.group,
            cluster=mapping.cluster,
            pool=mapping.pool,
            giver=request.user,
            actor=queries.actor(request.user),
            now=now,
            reason=given["reason"],
        )

    look = {"title": _("Remove the role of %(name)s") % {"name": mapping.group}, "verb": _("Remove"), "icon": "users"}
    text = _("Its members lose the role at once.")
    return _act(request, form, take, page="group-unmap", args=(pk,), grave=True, text=text, **look)


def _act(
    request: Request,
    form: BaseForm,
    do: Callable[[dict[str, Any], datetime], None],
    *,
    page: str,
    args: Any = (),
    **look: Any,
) -> HttpResponse:
    address = reverse(f"console:{page}", args=args)
    return form_dialog.act(request, form, do, back=reverse("console:access"), address=address, **look)
