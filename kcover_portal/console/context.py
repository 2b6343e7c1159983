"""Template context of every page: navigation, rights, mode banner, palette."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise, SimpleLazyObject
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from kcover import reasons
from kcover.decisions import decide
from kcover_portal import localization
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.reads import safety
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person
from kcover_portal.runtime import queries as runtime


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """An entry of the navigation; ``key`` is the letter after g in the keyboard shortcut."""

    page: str
    label: str | Promise
    icon: str
    key: str
    views: tuple[str, ...]
    admin: bool = False
    everywhere: bool = False  # only for admins of everything


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """A palette entry: a page, or with ``asks`` an action that opens a dialog. ``words`` are search terms."""

    label: str | Promise
    icon: str
    href: str
    asks: bool = False
    words: str = ""


PREFLIGHT_PAGES = (
    *("preflight-runs", "preflight-run"),
    *("preflight-plans", "preflight-plan", "preflight-plan-new", "preflight-plan-cancel"),
)
NAVIGATION = (
    NavigationItem("overview", _("Overview"), "dashboard", "o", ("overview",)),
    NavigationItem("nodes", _("Nodes"), "server", "n", ("nodes", "node", "node-act")),
    NavigationItem(
        "incidents",
        _("Incidents"),
        "alert-triangle",
        "x",
        ("incidents", "incident", "occurrences", "decisions", "read-log"),
    ),
    NavigationItem("rescues", _("Rescues"), "heart-rate-monitor", "r", ("rescues", "rescue", "rescue-act")),
    NavigationItem("approvals", _("Approvals"), "user", "a", ("approvals", "approval-link")),
    NavigationItem(
        "policies", pgettext_lazy("rules", "Policies"), "file-text", "p", ("policies", "policy", "policy-edit")
    ),
    NavigationItem("standbys", _("Standbys"), "switch-horizontal", "b", ("standbys",)),
    NavigationItem(
        "repairs",
        _("Repairs"),
        "tool",
        "d",
        ("repairs", "repair", "repair-new", "repair-change", "repair-act", "repair-terms"),
    ),
    NavigationItem("jobs", _("Jobs"), "stack", "j", ("jobs", "job-act")),
    NavigationItem(
        "check-runs",
        _("Checks"),
        "list-check",
        "c",
        (
            *("check-runs", "check-run", "check-run-new"),
            *("validations", "validation", "validation-new", "validation-cancel", "validation-profile"),
        ),
    ),
    NavigationItem("preflight-runs", _("Preflight"), "binoculars", "e", PREFLIGHT_PAGES),
    NavigationItem("sources", _("Sources"), "plug", "u", ("sources", "source", "source-new")),
    NavigationItem("safety", _("Safety"), "shield", "f", ("safety", "safety-guard", "safety-mode", "maintenance-new")),
    NavigationItem(
        "notifications",
        _("Notifications"),
        "bell",
        "m",
        (
            *("notifications", "channel-new", "channel", "channel-delete", "route-new", "route-delete"),
            *("namespace-route-new", "namespace-route-delete"),
        ),
        everywhere=True,
    ),
    NavigationItem("audit", _("Audit log"), "clipboard-list", "l", ("audit", "audit-sinks", "audit-sink")),
    NavigationItem("system", _("System"), "activity", "s", ("system",)),
    NavigationItem("access", _("Access"), "key", "w", ("access", "access-token", "access-user"), admin=True),
)


@dataclass(frozen=True, slots=True)
class Banner:
    """The mode everywhere and in clusters that differ, and the alarms that block automation now."""

    mode: str
    reason: str
    differing: tuple[tuple[str, str, str], ...]
    alarms: tuple[safety.Alarm, ...]

    @property
    def look(self) -> Badge:
        return presentation.of("mode", self.mode)


@dataclass(frozen=True, slots=True)
class Rights:
    """The verbs that the person has in at least one cluster; pages of one cluster check that cluster again."""

    operate: bool
    approve: bool
    admin: bool
    pause: bool


def shared(request: HttpRequest) -> dict[str, Any]:
    """The context of every page and fragment; lazy, so it costs no query until a template uses it."""
    fragment = bool(getattr(request, "htmx", False)) and request.method == "GET"
    context: dict[str, Any] = {
        "base": "console/fragment.html" if fragment else "console/base.html",
        "here": request.resolver_match.url_name if request.resolver_match else "",
        "demo": settings.KCOVER_DEMO_URL,
        "languages": settings.LANGUAGES,
    }
    user = getattr(request, "user", None)
    if isinstance(user, User) and user.is_authenticated:
        context["rights"] = SimpleLazyObject(lambda: rights(user))
        context["places"] = SimpleLazyObject(lambda: places(user))
        context["palette"] = SimpleLazyObject(lambda: palette(user, context["banner"].mode))
        context["banner"] = SimpleLazyObject(lambda: banner(user))
        context["waiting"] = SimpleLazyObject(lambda: waiting(user))
    return context


def places(user: User) -> list[NavigationItem]:
    """The navigation entries that the person may open."""
    admin, everywhere = accounts.may_somewhere(user, Verb.ADMINISTER), accounts.may(user, Verb.WRITE_CHANNELS, None)
    return [place for place in NAVIGATION if (admin or not place.admin) and (everywhere or not place.everywhere)]


def palette(user: User, mode: str) -> list[PaletteEntry]:
    """The entries of the command palette: pages first, then actions."""
    found = [
        PaletteEntry(place.label, place.icon, reverse(f"console:{place.page}"), words=place.page)
        for place in places(user)
    ]
    found += [
        PaletteEntry(_("Occurrences"), "notes", reverse("console:occurrences"), words="events occurrences xid"),
        PaletteEntry(_("Decisions"), "list-check", reverse("console:decisions"), words="decisions"),
        PaletteEntry(_("Analyse a log"), "upload", reverse("console:read-log"), words="paste dmesg log xid"),
        PaletteEntry(_("Your account"), "user-circle", reverse("console:account"), words="password sessions"),
        PaletteEntry(_("API"), "api", reverse("api:docs"), words="swagger rest"),
    ]
    if rights(user).pause:
        verb = "resume" if mode == "paused" else "pause"
        label = _("Resume") if mode == "paused" else _("Pause everything")
        found.append(
            PaletteEntry(label, f"player-{'play' if verb == 'resume' else 'pause'}", reverse(f"console:{verb}"), True)
        )
    if accounts.may(user, Verb.WRITE_POLICIES, None):
        found.append(PaletteEntry(_("New policy"), "plus", reverse("console:policy-new"), words="policy"))
    return found


def rights(user: User) -> Rights:
    """The verbs that the person has in at least one cluster; pausing everything requires the role for all clusters."""
    return Rights(
        operate=accounts.may_somewhere(user, Verb.REPAIR),
        approve=accounts.may_somewhere(user, Verb.APPROVE),
        admin=accounts.may(user, Verb.WRITE_POLICIES, None),
        pause=accounts.may(user, Verb.PAUSE, None),
    )


def banner(user: User) -> Banner:
    """The global mode, the clusters that are stricter, and the current alarms."""
    installation = runtime.installation()
    mode = decide.strictest(settings.KCOVER_MODE, installation.mode)
    seen = accounts.scope(user)
    clusters = list(seen.clusters().order_by("name"))
    differing = tuple(
        (cluster.name, fleet.own_mode(cluster), _why(cluster))
        for cluster in clusters
        if cluster.acted_on_by or decide.strictest(mode, cluster.mode) != mode
    )
    alarms = tuple(safety.alarms([cluster for cluster in clusters if cluster in seen], now=timezone.now()))
    return Banner(mode, installation.reason if installation.mode == mode else "", differing, alarms)


def _why(cluster: Cluster) -> str:
    """The reason why a cluster's mode is stricter: the reason of its pause, or the other system that acts there."""
    if not cluster.acted_on_by:
        return cluster.pause_reason
    other = localization.say(reasons.of("acted_on_by", system=cluster.acted_on_by))
    return f"{cluster.pause_reason} {other}".strip()


def waiting(user: User) -> dict[str, int]:
    """The number of rescues that wait for a person, by navigation entry."""
    return accounts.visible(user, Rescue.objects.all()).aggregate(
        approvals=Count("pk", filter=needs_person.AWAITING_APPROVAL),
        rescues=Count("pk", filter=needs_person.LEFT_TO_PEOPLE),
    )
