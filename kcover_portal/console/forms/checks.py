"""The forms that start a check run, a validation and pair tests."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from kcover.checks import autopilot
from kcover.preflight import pair_tests
from kcover.validation.profiles import Profile
from kcover_portal.console.forms.scopes import OnNodes
from kcover_portal.fleet.models import Cluster
from kcover_portal.preflight.models import PairPlan
from kcover_portal.preflight.services import pair_plans

OFFERED = tuple(autopilot.CHECKS)


class _OnNodes(OnNodes):
    """The nodes of a cluster to check."""

    whole = _("Every GPU node")


class Checks(_OnNodes):
    """The checks to run."""

    checks = forms.MultipleChoiceField(
        choices=[(name, name) for name in OFFERED],
        initial=list(autopilot.PERIODIC_CHECKS),
        label=_("Checks"),
        widget=forms.SelectMultiple(attrs={"class": "form-select", "size": len(OFFERED)}),
    )
    level = forms.TypedChoiceField(
        choices=[(level, level) for level in autopilot.DCGM_LEVELS],
        coerce=int,
        label=_("DCGM level"),
        help_text=_("Level 2 and above needs idle GPUs, as gpumem does."),
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    batch = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=100_000,
        label=_("Nodes at a time"),
        help_text=_("Leave blank for all at once."),
        widget=forms.NumberInput(attrs={"class": "form-control"}),
    )
    field_order = ("cluster", "by", "which", "checks", "level", "batch")


class Validate(_OnNodes):
    """The profile to validate with. ``in_force``: the profiles by name."""

    profile = forms.ChoiceField(label=_("Profile"), widget=forms.Select(attrs={"class": "form-select"}))
    reason = forms.CharField(
        required=False,
        max_length=500,
        label=_("Reason"),
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    field_order = ("cluster", "by", "which", "profile", "reason")

    def __init__(
        self, data: Any, *, clusters: QuerySet[Cluster], initial: dict[str, Any], in_force: Mapping[str, Profile]
    ) -> None:
        super().__init__(data, clusters=clusters, initial=initial)
        field = self.fields["profile"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, f"{name}: {_content(profile)}") for name, profile in in_force.items()]


def _content(profile: Profile) -> str:
    """The checks of a profile, with dcgm's level."""
    return ", ".join(f"dcgm -r {profile.level}" if name == "dcgm" else name for name in profile.names)


class TestPairs(_OnNodes):
    """The pair tests to run."""

    rounds = forms.IntegerField(
        min_value=1,
        max_value=pair_plans.MAX_ROUNDS,
        initial=pair_tests.ROUNDS,
        label=_("Rounds"),
        help_text=_("Each node meets another node in each round."),
        widget=forms.NumberInput(attrs={"class": "form-control"}),
    )
    rule = forms.ChoiceField(
        choices=[(rule.value, rule.label) for rule in pair_plans.RULES],
        initial=PairPlan.Rule.CONFIRMED,
        label=_("Verdict"),
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    threshold = forms.FloatField(
        min_value=0.001,
        initial=pair_plans.THRESHOLD_GBPS,
        label=_("Bus bandwidth that each pair must reach (GB/s)"),
        widget=forms.NumberInput(attrs={"class": "form-control", "step": "any"}),
    )
    reason = forms.CharField(
        required=False,
        max_length=500,
        label=_("Reason"),
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    busy_nodes = forms.BooleanField(
        required=False,
        label=_("Test nodes with other work too"),
        help_text=_("A node with too few free GPUs is not measured."),
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )
    field_order = ("cluster", "by", "which", "rounds", "rule", "threshold", "busy_nodes", "reason")
