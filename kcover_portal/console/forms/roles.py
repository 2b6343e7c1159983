"""Forms for users, their roles, custom roles and the roles of groups."""

from collections.abc import Collection
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from kcover_portal.accounts import services
from kcover_portal.accounts.models import Role, Verb
from kcover_portal.console.forms import Somewhere, widgets


def _roles() -> list[tuple[str, Any]]:
    titles = dict(Role.choices)
    return [(name, titles.get(name, name)) for name in services.known_roles()]


def _role() -> forms.ChoiceField:
    return forms.ChoiceField(choices=_roles, label=gettext_lazy("Role"), widget=widgets.select())


def _pool() -> forms.CharField:
    help_text = gettext_lazy("Only the nodes of this pool. Leave blank for the whole cluster.")
    return forms.CharField(
        label=gettext_lazy("Pool"), required=False, max_length=120, widget=widgets.line(), help_text=help_text
    )


def _password() -> forms.CharField:
    label = gettext_lazy("Password")
    return forms.CharField(label=label, max_length=200, strip=False, widget=widgets.new_password())


class NewUser(Somewhere):
    username = forms.CharField(label=gettext_lazy("User"), max_length=150, widget=widgets.line())
    password = _password()
    role = _role()
    pool = _pool()
    field_order = ("username", "password", "role", "cluster", "pool")


class Invite(Somewhere):
    """A person to invite, and their first role."""

    username = forms.CharField(label=gettext_lazy("User"), max_length=150, widget=widgets.line())
    role = _role()
    pool = _pool()
    field_order = ("username", "role", "cluster", "pool")


class GiveRole(Somewhere):
    role = forms.ChoiceField(
        choices=lambda: [("", gettext_lazy("none")), *_roles()],
        label=gettext_lazy("Role"),
        required=False,
        widget=widgets.select(),
    )
    pool = _pool()
    field_order = ("role", "cluster", "pool")


class NewPassword(forms.Form):
    password = _password()


class CustomRole(forms.Form):
    """The verbs of a custom role, and its name while it is new.

    ``offered``: the verbs to choose from.
    """

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=60,
        widget=widgets.line(),
        help_text=gettext_lazy("Letters, digits, hyphens and underscores. It cannot be changed later."),
    )
    verbs = forms.MultipleChoiceField(label=gettext_lazy("Allowed actions"), widget=widgets.checkboxes())

    def __init__(self, data: Any, *, offered: Collection[str], contains: Collection[str] | None = None) -> None:
        super().__init__(data)
        verbs = self.fields["verbs"]
        assert isinstance(verbs, forms.MultipleChoiceField)
        verbs.choices = [(verb.value, verb.label) for verb in Verb if verb in offered]
        verbs.initial = [Verb.READ.value] if contains is None else list(contains)
        if contains is not None:
            del self.fields["name"]


class GroupRole(Somewhere):
    """A group of the identity provider, and the role of its members in a place."""

    group = forms.CharField(
        label=gettext_lazy("Group"),
        max_length=255,
        widget=widgets.line(),
        help_text=gettext_lazy("Exactly as in the tokens of the identity provider."),
    )
    role = _role()
    pool = _pool()
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=500,
        widget=widgets.line(),
        help_text=gettext_lazy("Recorded in the audit log."),
    )
    field_order = ("group", "role", "cluster", "pool", "reason")
