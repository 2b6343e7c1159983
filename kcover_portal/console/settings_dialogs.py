"""The dialogs of the rows that people set: a new one, a change and the end, made from the declaration of their kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import models
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, require, signed_in
from kcover_portal.console.forms.settings_rows import SettingsForm
from kcover_portal.settings_rows import Resource
from kcover_portal.settings_rows.columns import Words

Row = TypeVar("Row", bound=models.Model)


@dataclass(frozen=True, kw_only=True)
class SettingsDialogs(Generic[Row]):
    """The dialogs of one kind of rows, each with a fresh second factor.

    ``page``: the list of the rows; ``name``: the name of a row's address, to which ``-new`` and ``-delete`` are added.
    ``labels``: the kinds of which people add rows, with what they are called; a title with ``%(kind)s`` names it.
    Titles with ``%(name)s`` name the row. ``add``: the word on the button that makes a row.
    """

    resource: Resource[Row]
    page: str
    name: str
    icon: str
    labels: Mapping[str, Words]
    new_title: Words
    add: Words
    title: Words
    delete_title: Words
    delete_text: Words

    def paths(self, base: str, *, row: str = "<slug:name>/", change: str = "change/") -> list[URLPattern]:
        """Their addresses below ``base``. ``row``: the part with a row's name; ``change``: what follows it."""
        return [
            path(
                f"{base}new/{'<slug:kind>/' if self.resource.kinds else ''}",
                _dialog(self._new),
                name=f"{self.name}-new",
            ),
            path(f"{base}{row}{change}", _dialog(self._change), name=self.name),
            path(f"{base}{row}delete/", _dialog(self._delete), name=f"{self.name}-delete"),
        ]

    def find(self, request: Request, name: str) -> Row:
        """The row of this name. Raises Http404 unless the person may see it, and Forbidden unless they may set it."""
        if not self.resource.has_cluster:
            require(request, Verb(self.resource.verb), None)
            return get_object_or_404(self.resource.rows(), name=name)
        row: Any = get_object_or_404(accounts.visible(request.user, self.resource.rows(), node=None), name=name)
        require(request, Verb(self.resource.verb), row.cluster)
        found: Row = row
        return found

    def _new(self, request: Request, kind: str = "") -> HttpResponse:
        verb = Verb(self.resource.verb)
        clusters = accounts.clusters_of(request.user, verb) if self.resource.has_cluster else None
        if not clusters:
            require(request, verb, None)
        if kind not in (self.labels or ("",)):
            raise Http404
        form = SettingsForm(request.POST or None, resource=self.resource, kind=kind, clusters=clusters)

        def make(given: dict[str, Any], now: datetime) -> None:
            place = {"cluster": given["cluster"]} if self.resource.has_cluster else {}
            of_kind = {"kind": kind} if kind else {}
            row = self.resource.model(name=given["name"], **of_kind, **place)
            self._require_more(request, form, None)
            self.resource.make(row, form.settings(), actor=accounts.actor(request.user), now=now)

        shown = {"title": str(self.new_title) % {"kind": self.labels.get(kind, "")}, "verb": self.add}
        address = reverse(f"console:{self.name}-new", args=(kind,) if kind else ())
        return self._act(request, form, make, address=address, **shown)

    def _change(self, request: Request, name: str) -> HttpResponse:
        row = self.find(request, name)
        form = SettingsForm(request.POST or None, resource=self.resource, kind=getattr(row, "kind", ""), row=row)

        def change(given: dict[str, Any], now: datetime) -> None:
            actor = accounts.actor(request.user)
            self._require_more(request, form, row)
            self.resource.change(row, form.settings(), actor=actor, reason=given["reason"], now=now)

        shown = {"title": str(self.title) % {"name": name}, "verb": _("Save")}
        return self._act(request, form, change, address=reverse(f"console:{self.name}", args=(name,)), **shown)

    def _require_more(self, request: Request, form: SettingsForm, row: Row | None) -> None:
        for verb in self.resource.more_verbs(form.settings(), row):
            require(request, Verb(verb), getattr(row, "cluster", None))

    def _delete(self, request: Request, name: str) -> HttpResponse:
        row = self.find(request, name)
        form = forms.Act(request.POST or None)

        def delete(given: dict[str, Any], now: datetime) -> None:
            self.resource.delete(row, actor=accounts.actor(request.user), reason=given["reason"], now=now)

        shown = {"title": str(self.delete_title) % {"name": name}, "text": self.delete_text, "verb": _("Delete")}
        address = reverse(f"console:{self.name}-delete", args=(name,))
        return self._act(request, form, delete, address=address, grave=True, **{**shown, "icon": "trash"})

    def _act(self, request: Request, form: Any, do: form_dialog.Do, **shown: Any) -> HttpResponse:
        look = {"icon": self.icon, **shown}
        return form_dialog.act(request, form, do, back=reverse(f"console:{self.page}"), step_up=True, **look)


def _dialog(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponseBase]:
    """A bound view as Django calls it: for people who are signed in."""

    def called(request: Request, /, **parts: Any) -> HttpResponse:
        return view(request, **parts)

    return require_http_methods(["GET", "POST"])(signed_in(called))
