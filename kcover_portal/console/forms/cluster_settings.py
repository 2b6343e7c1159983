"""Forms for settings of a cluster: the labels of its topology, its drains, and the two-person rules."""

from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy

from kcover.nodes import topology
from kcover_portal.console.forms import Act, widgets
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError

MAX_KEY_CHARACTERS = 317  # a DNS name of 253, a slash, a name of 63
DOMAINS = {
    "rack": gettext_lazy("Rack"),
    "leaf": gettext_lazy("Leaf switch"),
    "nvlink": gettext_lazy("NVLink domain"),
    "pool": gettext_lazy("Pool"),
}


class Topology(Act):
    """The label key of each domain."""

    def __init__(self, data: Any = None, *, cluster: Cluster) -> None:
        super().__init__(data)
        for domain in topology.DOMAINS:
            field = forms.CharField(
                label=DOMAINS[domain],
                required=False,
                max_length=MAX_KEY_CHARACTERS,
                widget=widgets.line(),
                help_text=gettext_lazy("Leave blank to detect from standard labels."),
            )
            self.fields[domain], self.initial[domain] = field, cluster.topology.get(domain, "")
        self.order_fields([*topology.DOMAINS, "reason"])

    def changes(self) -> dict[str, Any]:
        """The change for ``cluster_settings.set_cluster``."""
        return {"topology": {domain: self.cleaned_data[domain] for domain in topology.DOMAINS}}

    def refuse(self, error: FieldError) -> None:
        """Attach the service's error to the field of its domain."""
        domain = dict(error.reason.params).get("domain")
        self.add_error(str(domain) if domain in self.fields else None, localization.say(error.reason))


class _Settings(Act):
    """Settings of a cluster: the fields that ``SETTINGS`` names."""

    SETTINGS: ClassVar[tuple[str, ...]]

    def __init__(self, data: Any = None, *, cluster: Cluster) -> None:
        super().__init__(data)
        self.initial = {name: getattr(cluster, name) for name in self.SETTINGS}
        self.cluster = cluster

    def changes(self) -> dict[str, Any]:
        """The settings that differ from the cluster's. A field that was not sent changes nothing."""
        given = {name: self.cleaned_data[name] for name in self.SETTINGS}
        return {name: value for name, value in given.items() if value not in ("", getattr(self.cluster, name))}


class DrainTimeout(_Settings):
    """What follows when a drain has run out of time."""

    SETTINGS = ("on_drain_timeout",)

    on_drain_timeout = forms.ChoiceField(
        label=gettext_lazy("After a drain timeout"),
        choices=Cluster.OnDrainTimeout.choices,
        widget=widgets.select(),
        help_text=gettext_lazy("A rule with a setting of its own is not affected."),
    )
    field_order = ("on_drain_timeout", "reason")


class TwoPeople(_Settings):
    """The rules for a second person or factor: for actions by hand, changes that loosen a limit, and sign-in."""

    SETTINGS = ("hand_approval", "isolate_before_approval", "second_admin", "second_factor")

    hand_approval = forms.ChoiceField(
        label=gettext_lazy("Manual actions need approval"),
        choices=Cluster.HandApproval.choices,
        widget=widgets.select(),
        help_text=gettext_lazy("When a manual action that interrupts work needs another person's approval."),
    )
    isolate_before_approval = forms.BooleanField(
        label=gettext_lazy("In approve mode, isolate a faulty node before approval"),
        required=False,
        widget=widgets.checkbox(),
    )
    second_admin = forms.BooleanField(
        label=gettext_lazy("A second admin confirms changes that loosen a limit"),
        required=False,
        widget=widgets.checkbox(),
    )
    second_factor = forms.ChoiceField(
        label=gettext_lazy("Second factor"),
        choices=Cluster.SecondFactor.choices,
        required=False,
        widget=widgets.select(),
        help_text=gettext_lazy("Which people with a role in this cluster need one, at their next sign-in."),
    )
    field_order = ("hand_approval", "isolate_before_approval", "second_admin", "second_factor", "reason")


class Price(Act):
    """What an hour of one GPU costs."""

    gpu_hour_price = forms.DecimalField(
        label=gettext_lazy("Price of a GPU hour"),
        required=False,
        min_value=0,
        max_digits=10,
        decimal_places=4,
        widget=widgets.number(),
        help_text=gettext_lazy("In your currency. Leave blank if it is not known."),
    )
    field_order = ("gpu_hour_price", "reason")

    def __init__(self, data: Any = None, *, cluster: Cluster) -> None:
        super().__init__(data)
        self.initial = {"gpu_hour_price": cluster.gpu_hour_price}


class LemonRepairs(Act):
    """The setting ``lemon_repairs``: the portal reports repairs of nodes that fail repeatedly."""

    lemon_repairs = forms.BooleanField(
        label=gettext_lazy("Report a repair of a node with four faults in 56 days"),
        required=False,
        widget=widgets.checkbox(),
        help_text=gettext_lazy("Faults before its last repair do not count. The node itself is not changed."),
    )
    field_order = ("lemon_repairs", "reason")

    def __init__(self, data: Any = None, *, cluster: Cluster) -> None:
        super().__init__(data)
        self.initial = {"lemon_repairs": cluster.lemon_repairs}
