"""The form of a row that people set, made from the declaration of its kind."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from django import forms
from django.db import models
from django.utils.translation import gettext as _, gettext_lazy

from kcover_portal.accounts.models import User
from kcover_portal.console.forms import widgets
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
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
    Secret,
    Several,
    Text,
)

MAX_PAIRS, MAX_RECIPIENTS = 20_000, 4000  # characters
YES_OR_NO = [("yes", gettext_lazy("yes")), ("no", gettext_lazy("no"))]
KEPT = gettext_lazy("Leave blank to keep the current value.")
KEPT_SECRET = gettext_lazy("Leave blank to keep the current value, which is never shown.")


class PairsField(forms.CharField):
    """Lines of key=value. Keys that the row has and that are gone from the text become None."""

    def __init__(self, *, present: Mapping[str, Any], **more: Any) -> None:
        super().__init__(max_length=MAX_PAIRS, required=False, **more)
        self.present = present

    def clean(self, value: Any) -> dict[str, str | None]:
        """Returns the settings by key. Raises ValidationError for a line without ``=``."""
        found: dict[str, str | None] = dict.fromkeys(self.present)
        for line in filter(str.strip, super().clean(value).splitlines()):
            key, sign, text = line.partition("=")
            if not sign or not key.strip():
                raise forms.ValidationError(_("%(line)s is not key=value.") % {"line": line[:60]})
            found[key.strip()] = text.strip()
        return found


class SettingsForm(forms.Form):
    """A row of one kind; new if ``row`` is None. It shows no secret, and nothing that may contain one.

    ``clusters``: those in which the person may add a row.
    """

    name = forms.CharField(label=gettext_lazy("Name"), max_length=MAX_NAME, widget=widgets.line())
    cluster = forms.ModelChoiceField(
        Cluster.objects.none(),
        label=gettext_lazy("Cluster"),
        to_field_name="name",
        empty_label=None,
        widget=widgets.select(),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=widgets.line(),
        help_text=gettext_lazy("Recorded in the audit log."),
    )

    def __init__(
        self,
        data: Any = None,
        *,
        resource: Resource[Any],
        kind: str = "",
        row: models.Model | None = None,
        clusters: models.QuerySet[Cluster] | None = None,
    ) -> None:
        super().__init__(data)
        self.kind = kind
        shown = [column for column in resource.columns_of(kind) if row is not None or column.name != "enabled"]
        self.columns = [*shown, *(resource.making if row is None else ())]
        for column in self.columns:
            self.fields.update(_fields(column, kind, row))
        place, name = self.fields["cluster"], self.fields["name"]
        assert isinstance(place, forms.ModelChoiceField)
        place.queryset = Cluster.objects.none() if clusters is None else clusters.order_by("name")
        name.help_text = str(resource.name_hint)
        last = ("enabled", "reason")
        dropped = ["reason"] if row is None else ["name", "cluster"]
        for unused in dropped if resource.has_cluster else {*dropped, "cluster"}:
            self.fields.pop(unused)
        self.order_fields([*(field for field in self.fields if field not in last), *last])

    def settings(self) -> dict[str, Any]:
        """What was given, for the service. A blank line keeps a value that the form does not show."""
        return dict(pair for column in self.columns for pair in self._given(column))

    def _given(self, column: Column) -> Iterator[tuple[str, Any]]:
        value = self.cleaned_data.get(column.name)
        match column:
            case Options():
                yield column.name, {part.name: self.cleaned_data[part.name] for part in column.parts(self.kind)}
            case Flag():
                if value:
                    yield column.name, value == "yes"
            case Recipients():
                yield column.name, [address.strip() for address in str(value).split(",") if address.strip()]
            case Text(kept=True):
                if value:
                    yield column.name, value
            case _:
                if column.name in self.cleaned_data:
                    yield column.name, value

    def refuse(self, error: FieldError) -> None:
        """Attach a service's error to its field, with the name of the key that it is about."""
        field, _slash, key = error.field.partition("/")
        text = localization.say(error.reason)
        self.add_error(field if field in self.fields else None, f"{key}: {text}" if key else text)


def _fields(column: Column, kind: str, row: models.Model | None) -> dict[str, forms.Field]:
    """The fields of a setting: one; of options one for each, and none for pairs without any key."""
    if isinstance(column, Options):
        present = getattr(row, column.field, {})
        return {part.name: _field(part, kind, row, present.get(part.name)) for part in column.parts(kind)}
    if isinstance(column, Pairs) and not column.keys(kind):
        return {}
    present = column.initial if row is None or isinstance(column, Secret) else getattr(row, column.field, None)
    return {column.name: _field(column, kind, row, present)}


def _field(column: Column, kind: str, row: models.Model | None, present: Any) -> forms.Field:
    """One field. ``present``: the value of the row, or of a new one."""
    shared: dict[str, Any] = {"label": column.label_of(kind), "help_text": column.hint_of(kind)}
    required = column.is_required(kind)
    match column:
        case Text():
            if column.kept:
                shared |= {"help_text": KEPT_SECRET if isinstance(column, Secret) else KEPT} if row else {}
                required, present = required and row is None, None
            widget = widgets.new_password() if isinstance(column, Secret) else widgets.line()
            return forms.CharField(required=required, initial=present, max_length=column.most, widget=widget, **shared)
        case Flag():
            choice = "yes" if present else "no"
            return forms.ChoiceField(
                required=not column.optional, choices=YES_OR_NO, initial=choice, widget=widgets.select(), **shared
            )
        case Number():
            return forms.IntegerField(
                required=required,
                initial=present,
                min_value=0,
                max_value=column.most,
                widget=widgets.number(),
                **shared,
            )
        case Choice():
            return forms.ChoiceField(choices=column.choices, initial=present, widget=widgets.select(), **shared)
        case Several():
            return forms.MultipleChoiceField(
                choices=column.choices, initial=present, widget=widgets.checkboxes(), **shared
            )
        case Recipients():
            joined = ", ".join(present or ())
            return forms.CharField(
                required=required, initial=joined, max_length=MAX_RECIPIENTS, widget=widgets.line(), **shared
            )
        case Person():
            return forms.ModelChoiceField(
                User.objects.filter(is_active=True).order_by("username"),
                required=False,
                initial=present,
                to_field_name="username",
                empty_label=gettext_lazy("no one"),
                widget=widgets.select(),
                **shared,
            )
        case Pairs():
            keys = _("One key=value in each line. Keys: %(names)s") % {"names": ", ".join(column.keys(kind))}
            area = forms.Textarea(attrs={"class": "form-control mono", "rows": 4, "spellcheck": "false"})
            present = present or {}
            return PairsField(present=present, initial=_lines(present), widget=area, **{**shared, "help_text": keys})
    raise TypeError(f"no form has a field for {type(column).__name__}")


def _lines(given: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}={_text(value)}" for key, value in given.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)
