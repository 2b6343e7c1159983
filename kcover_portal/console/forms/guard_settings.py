"""Forms for the limits of automation: one guard of a cluster, its mode, a maintenance window.

The core validates the values (``guards.merge``). These forms only parse them, with times as people write them.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from django import forms
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.translation import gettext as _, gettext_lazy

from kcover import reasons
from kcover.decisions import guards
from kcover.nodes import scopes
from kcover.values import durations, limits
from kcover.values.recurrence import Recurrence, RecurrenceError
from kcover_portal.console.forms import Act, Somewhere, widgets
from kcover_portal.console.forms.scopes import WAYS, ScopeFields, document, split
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import pauses
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime.models import Installation, Mode

_MAX_CHARACTERS = 40  # of a time or a limit as people write them
_LINE = {"class": "form-control", "autocomplete": "off", "spellcheck": "false"}


class Span(forms.Field):
    """A duration such as 90 s, 5 min or 1 h 30 min; its value is whole seconds."""

    def to_python(self, value: Any) -> Any:
        """Seconds, or None for nothing."""
        try:
            length = durations.read(str(value or "").strip(), seconds=True)
        except durations.DurationError as error:
            raise forms.ValidationError(_("Enter a duration such as 90 s, 5 min or 1 h 30 min.")) from error
        return int(length.total_seconds()) if length is not None else None

    def prepare_value(self, value: Any) -> Any:
        """Seconds as text; typed text is kept."""
        return str(reasons.span(timedelta(seconds=value))) if isinstance(value, int) else value


class Limit(forms.Field):
    """A count or a percentage, as in the JSON of the guards."""

    def to_python(self, value: Any) -> Any:
        """10 or "10%", None for nothing."""
        text = str(value or "").replace(" ", "")[:_MAX_CHARACTERS]
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text or None


def _whole(label: Any, *, required: bool = True) -> Callable[[], forms.Field]:
    widget = forms.NumberInput(attrs={"class": "form-control"})
    return lambda: forms.IntegerField(label=label, required=required, widget=widget)


def _span(label: Any) -> Callable[[], forms.Field]:
    example = gettext_lazy("For example 90 s, 5 min, 1 h 30 min or 7 d.")
    return lambda: Span(label=label, help_text=example, widget=forms.TextInput(attrs=_LINE))


def _limit(*, required: bool = True) -> Callable[[], forms.Field]:
    none = "" if required else gettext_lazy("Leave blank for no budget.")
    label = gettext_lazy("Maximum nodes (count or percentage)")
    return lambda: Limit(label=label, required=required, help_text=none, widget=forms.TextInput(attrs=_LINE))


def _on() -> forms.Field:
    return forms.BooleanField(label=gettext_lazy("Enabled"), required=False, widget=widgets.checkbox())


def _by() -> forms.Field:
    help_text = gettext_lazy("cluster, pool, or label:KEY to count per label value")
    return forms.CharField(
        label=gettext_lazy("Counted by"), max_length=300, help_text=help_text, widget=forms.TextInput(attrs=_LINE)
    )


_TIME_WINDOW_LABEL = gettext_lazy("Time window")
# The parts of each guard as its JSON names them. A guard without parts has one field "".
PARTS: Mapping[str, Mapping[str, Callable[[], forms.Field]]] = {
    "storm": {
        "enabled": _on,
        "nodes": _whole(gettext_lazy("At least (nodes)")),
        "percent": _whole(gettext_lazy("At least (percent of nodes)")),
        "window": _span(_TIME_WINDOW_LABEL),
    },
    "rate": {"enabled": _on},
    "breaker": {"enabled": _on, "limit": _limit(), "window": _span(_TIME_WINDOW_LABEL)},
    "budget": {"limit": _limit(required=False), "by": _by},
    "floor": {"percent": _whole(gettext_lazy("Percentage that stays in service (blank = no floor)"), required=False)},
    "plans": {"limit": _whole(gettext_lazy("Maximum plans"))},
    "cooldown": {"": _span(gettext_lazy("Cooldown"))},
    "hold_down": {"": _span(gettext_lazy("Hold-down"))},
    "repeats": {"limit": _whole(gettext_lazy("Maximum reboots")), "window": _span(_TIME_WINDOW_LABEL)},
    "ladder": {
        "reboots": _whole(gettext_lazy("Reboots (blank = off)"), required=False),
        "window": _span(_TIME_WINDOW_LABEL),
    },
    "expiry": {"": _span(gettext_lazy("Expiry"))},
}


class Guard(Act):
    """The settings of one guard, with a reason."""

    def __init__(self, data: Any = None, *, guard: str, settings: guards.Settings) -> None:
        super().__init__(data)
        self.guard = guard
        written = guards.to_json(settings)[guard]
        for part, make in PARTS[guard].items():
            self.fields[part or guard] = make()
            self.initial[part or guard] = written[part] if part else written
        self.order_fields([*(part or guard for part in PARTS[guard]), "reason"])

    def patch(self) -> dict[str, Any]:
        """The patch for ``guards.merge``."""
        given = self.cleaned_data
        undivided = "" in PARTS[self.guard]
        return {self.guard: given[self.guard] if undivided else {part: given[part] for part in PARTS[self.guard]}}

    def refuse(self, error: guards.SettingError) -> None:
        """Attach the core's error to its field."""
        part = error.path.rpartition(".")[2]
        self.add_error(part if part in self.fields else None, localization.say(error.reason))


class GroupBudget(ScopeFields, Act):
    """The budget of one group of nodes, with a reason. Without a limit the group's budget is removed."""

    cluster = forms.CharField(required=False, widget=forms.HiddenInput())  # only the preview of the scope reads it
    only = forms.CharField(required=False, initial="group", widget=forms.HiddenInput())  # as above
    limit = Limit(
        label=gettext_lazy("Maximum nodes (count or percentage)"),
        required=False,
        help_text=gettext_lazy("Leave blank to remove the limit of this group."),
        widget=forms.TextInput(attrs=_LINE),
    )
    whole = gettext_lazy("Select one")
    ways = tuple((way, label) for way, label in WAYS if way in (*guards.SCOPE_KINDS, *scopes.DOMAINS))
    must_select = True
    field_order = ("cluster", "by", "which", "limit", "reason")

    def __init__(self, data: Any, *, cluster: Cluster, settings: guards.Settings, initial: Mapping[str, str]) -> None:
        super().__init__(data)
        self._limits = {one.scope: limits.render(one.limit) for one in settings.budget.scopes}
        self.initial.update(initial, cluster=cluster.name)
        with contextlib.suppress(scopes.ScopeError):  # an address that somebody wrote
            shown = scopes.parse(document(initial.get("by", ""), split(initial.get("which", ""))))
            self.initial["limit"] = self._limits.get(shown)

    def clean(self) -> dict[str, Any] | None:
        """Refuses to remove the limit of a group that has none."""
        given = super().clean() or self.cleaned_data
        removes = "scope" in given and "limit" in given and given["limit"] is None
        if removes and given["scope"] not in self._limits:
            self.add_error("limit", _("This group has no limit yet. Enter one."))
        return given

    def patch(self) -> dict[str, Any]:
        """The patch for ``guards.merge``: all groups with a limit, with this one set, changed or removed."""
        wanted = {**self._limits, self.cleaned_data["scope"]: self.cleaned_data["limit"]}
        kept = [{"limit": limit, **scope.to_json()} for scope, limit in wanted.items() if limit is not None]
        return {"budget": {"scopes": kept}}

    def refuse(self, error: guards.SettingError) -> None:
        """Attach the core's error to its field."""
        self.add_error("limit" if error.path.endswith(".limit") else "which", localization.say(error.reason))


class Resume(Act):
    """The end of a pause. ``seen``: the pause that the form shows; another one is not ended."""

    seen = forms.CharField(required=False, max_length=40, widget=forms.HiddenInput())

    def __init__(self, data: Any = None, *, seen: str) -> None:
        super().__init__(data)
        self.initial["seen"] = seen


@contextlib.contextmanager
def shows_the_pause_anew(form: Resume, row: Cluster | Installation) -> Iterator[None]:
    """If the pause is another one by now, the form shows that one, and the next try may end it."""
    try:
        yield
    except pauses.PauseChanged:
        row.refresh_from_db()
        posted = cast("QueryDict", form.data).copy()
        posted["seen"] = pauses.seen(row)
        form.data = posted
        raise


class ClusterMode(Resume):
    """The mode of one cluster."""

    mode = forms.ChoiceField(
        label=gettext_lazy("Mode"),
        choices=Mode.choices,
        widget=forms.Select(attrs={"class": "form-select"}),
        help_text=gettext_lazy(
            "Paused: nothing is done, and rescues wait. Shadow: the portal only records what it would do. Approve: it "
            "asks before it takes running work away. Enforce: it acts by itself, within the limits."
        ),
    )
    field_order = ("mode", "reason")

    def __init__(self, data: Any = None, *, mode: str, seen: str) -> None:
        super().__init__(data, seen=seen)
        self.initial["mode"] = mode


class Window(Somewhere, ScopeFields, Act):
    """A maintenance window: where, from when, for how long, and why."""

    begins = forms.DateTimeField(
        required=False,
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        widget=forms.DateTimeInput(attrs={"class": "form-control", "type": "datetime-local"}),
    )
    lasts = Span(
        label=gettext_lazy("Duration"),
        help_text=gettext_lazy("For example 90 s, 5 min, 1 h 30 min or 7 d."),
        widget=forms.TextInput(attrs=_LINE),
    )
    repeats = forms.ChoiceField(
        label=gettext_lazy("Repetition"),
        choices=[
            ("", gettext_lazy("does not repeat")),
            ("day", gettext_lazy("every day")),
            ("week", gettext_lazy("every week")),
        ],
        required=False,
        widget=forms.Select(attrs={"class": "form-select"}),
        help_text=gettext_lazy("At the same local time, also when clocks change. At most 60 windows."),
    )
    repeats_until = forms.DateTimeField(
        required=False,
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        widget=forms.DateTimeInput(attrs={"class": "form-control", "type": "datetime-local"}),
    )
    field_order = ("cluster", "by", "which", "begins", "lasts", "repeats", "repeats_until", "reason")
    # The field of this form at which an error of the service is shown.
    placed: Mapping[str, str] = {
        "starts_at": "begins",
        "ends_at": "lasts",
        "repeats.every": "repeats",
        "repeats.zone": "repeats",
        "repeats.until": "repeats_until",
    }

    def refuse(self, error: FieldError) -> None:
        """Attach the service's error to its field."""
        self.add_error(self.placed.get(error.field, error.field), localization.say(error.reason))

    def __init__(
        self,
        data: Any,
        *,
        clusters: QuerySet[Cluster],
        everywhere: bool,
        zone: str,
        initial: Mapping[str, str],
    ) -> None:
        super().__init__(data)
        self.initial.update(initial)
        cluster = self.fields["cluster"]
        assert isinstance(cluster, forms.ModelChoiceField)
        cluster.queryset = clusters.order_by("name")
        # The whole fleet, or a whole cluster, is what somebody chooses, never what nobody changed.
        self.initial.setdefault("by", "nodes")
        if (first := cluster.queryset.first()) is not None:
            self.initial.setdefault("cluster", first.name)
        if not everywhere:
            cluster.required, cluster.empty_label = True, None
        self.fields["begins"].label = _("Starts (%(zone)s; blank = now)") % {"zone": zone}
        self.fields["repeats_until"].label = _("Last start (%(zone)s)") % {"zone": zone}
        self._zone = zone

    def clean(self) -> dict[str, Any] | None:
        """Adds ``recurrence`` to the cleaned data; None if the window does not repeat."""
        given = super().clean() or self.cleaned_data
        every, until = given.get("repeats", ""), given.get("repeats_until")
        given["recurrence"] = None
        if every and until is not None:
            try:
                given["recurrence"] = Recurrence(every, self._zone, until)
            except RecurrenceError as error:
                self.add_error("repeats", localization.say(error.reason))
        elif every and "repeats_until" not in self.errors:
            self.add_error("repeats_until", _("Say when the last window starts."))
        elif until is not None:
            self.add_error("repeats", _("Say how often the window repeats, or leave the last start blank."))
        return given

    def span(self, *, now: datetime) -> tuple[datetime, datetime]:
        """(start, end) of the window."""
        begins = self.cleaned_data["begins"] or now
        return begins, begins + timedelta(seconds=self.cleaned_data["lasts"])


class EndWindow(Act):
    """The end of a maintenance window, and of those that repeat it."""

    which = forms.ChoiceField(
        label=gettext_lazy("End"),
        choices=[
            ("one", gettext_lazy("this window only")),
            ("series", gettext_lazy("this window and all repetitions")),
        ],
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    field_order = ("which", "reason")

    def __init__(self, data: Any = None, *, repeats: bool) -> None:
        super().__init__(data)
        if not repeats:
            del self.fields["which"]

    @property
    def whole_series(self) -> bool:
        return self.cleaned_data.get("which") == "series"
