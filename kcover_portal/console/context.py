"""What every template may ask for: where it stands, who looks, which mode holds."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import Promise, SimpleLazyObject
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from kcover import decision
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role, User
from kcover_portal.console import looks
from kcover_portal.console.reads import fleet as fleet_reads
from kcover_portal.fleet import queries as fleet
from kcover_portal.rescue.models import Rescue


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation: ``key`` is the letter after g."""

    page: str
    label: str | Promise
    icon: str
    key: str
    views: tuple[str, ...]


PLACES = (
    Place("overview", _("Overview"), "dashboard", "o", ("overview",)),
    Place("nodes", _("Nodes"), "server", "n", ("nodes", "node", "node-act")),
    Place("incidents", _("Incidents"), "alert-triangle", "x", ("incidents", "incident")),
    Place("rescues", _("Rescues"), "heart-rate-monitor", "r", ("rescues", "rescue", "rescue-act")),
    Place("policies", pgettext_lazy("rules", "Policies"), "file-text", "p", ("policies", "policy", "policy-edit")),
    Place("audit", _("Audit"), "clipboard-list", "l", ("audit",)),
)


@dataclass(frozen=True, slots=True)
class Banner:
    """How far automation goes, everywhere and in the clusters that differ."""

    mode: str
    reason: str
    differing: tuple[tuple[str, str, str], ...]

    @property
    def look(self) -> looks.Look:
        """How the mode looks."""
        return looks.of("mode", self.mode)


@dataclass(frozen=True, slots=True)
class Rights:
    """What the person may do somewhere; a page about one cluster asks again for that cluster."""

    operate: bool
    approve: bool
    admin: bool
    pause: bool


def shared(request: HttpRequest) -> dict[str, Any]:
    """The context of every page and fragment. Costs no query until a template asks."""
    fragment = bool(getattr(request, "htmx", False)) and request.method == "GET"
    context: dict[str, Any] = {
        "base": "console/fragment.html" if fragment else "console/base.html",
        "places": PLACES,
        "here": request.resolver_match.url_name if request.resolver_match else "",
        "demo": settings.KCOVER_DEMO_URL,
        "languages": settings.LANGUAGES,
    }
    user = getattr(request, "user", None)
    if isinstance(user, User) and user.is_authenticated:
        context["rights"] = SimpleLazyObject(lambda: rights(user))
        context["banner"] = SimpleLazyObject(lambda: banner(user))
        context["waiting_people"] = SimpleLazyObject(lambda: waiting_people(user))
    return context


def rights(user: User) -> Rights:
    """What the person may do somewhere; pausing everything needs the role everywhere."""
    return Rights(
        operate=accounts.may_somewhere(user, Role.OPERATOR),
        approve=accounts.may_somewhere(user, Role.APPROVER),
        admin=accounts.may(user, Role.ADMIN, None),
        pause=accounts.may(user, Role.OPERATOR, None),
    )


def banner(user: User) -> Banner:
    """The mode that holds for the installation, and the clusters that are stricter."""
    whole = fleet.installation()
    mode = decision.strictest(settings.KCOVER_MODE, whole.mode)
    differing = tuple(
        (cluster.name, cluster.mode, cluster.pause_reason)
        for cluster in accounts.clusters_of(user).order_by("name")
        if decision.strictest(mode, cluster.mode) != mode
    )
    return Banner(mode, whole.reason if whole.mode == mode else "", differing)


def waiting_people(user: User) -> int:
    """How many rescues wait for a person."""
    rows = Rescue.objects.filter(cluster__in=accounts.clusters_of(user))
    return rows.filter(fleet_reads.AWAITING | fleet_reads.LEFT_TO_PEOPLE).count()
