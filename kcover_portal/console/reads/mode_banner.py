"""The mode of the automation as each page shows it: the strip that is always there, and the banner with the details."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.conf import settings
from django.utils.translation import gettext as _, ngettext

from kcover import reasons
from kcover.policy import modes
from kcover_portal.accounts import queries as accounts
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.reads import alarms
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
from kcover_portal.runtime import queries as runtime

MAX_NAMES: Final = 2  # places of one statement that the strip names; more are a number
TONES: Final = ("bad", "ask", "hold", "ok")  # of modes and alarms, the worst first


@dataclass(frozen=True, slots=True)
class Sign:
    """One statement of the strip: a mode or an alarm, and where it holds (empty: everywhere, or in ``places``)."""

    look: Badge
    where: str = ""
    places: int = 1

    @property
    def text(self) -> str:
        return _("%(where)s: %(what)s") % {"where": self.where, "what": self.look.label} if self.where else self.brief

    @property
    def brief(self) -> str:
        """The statement without its place, for a narrow screen."""
        if self.places == 1:
            return str(self.look.label)
        return _("%(what)s (%(n)d)") % {"what": self.look.label, "n": self.places}


@dataclass(frozen=True, slots=True)
class Banner:
    """The mode everywhere and in clusters that differ, and the alarms that block automation now.

    ``clusters``: the names of all clusters by the mode that holds in them, the strictest mode first.
    """

    mode: str
    reason: str
    clusters: tuple[tuple[str, tuple[str, ...]], ...]
    differing: tuple[tuple[str, str, str], ...]
    alarms: tuple[alarms.Alarm, ...]

    @property
    def look(self) -> Badge:
        return presentation.of("mode", self.mode)

    @property
    def signs(self) -> list[Sign]:
        """The statements of the strip, each once, the worst first: a narrow screen leaves out the last ones."""
        found = [*self._modes(), *self._alarms()]
        return sorted(found, key=lambda sign: [*TONES, sign.look.tone].index(sign.look.tone))

    def _alarms(self) -> Iterator[Sign]:
        where: dict[Badge, dict[str, None]] = {}
        for alarm in self.alarms:
            place = " · ".join(name for name in (alarm.cluster, alarm.part) if name)
            where.setdefault(alarm.look, {})[place] = None
        for look, places in where.items():
            yield Sign(look, ", ".join(places) if len(places) <= MAX_NAMES else "", len(places))

    def _modes(self) -> Iterator[Sign]:
        if len(self.clusters) < 2:
            yield Sign(presentation.of("mode", self.clusters[0][0] if self.clusters else self.mode))
            return
        for mode, names in self.clusters:
            number = len(names)
            where = ngettext("%(n)d cluster", "%(n)d clusters", number) % {"n": number}
            yield Sign(presentation.of("mode", mode), " · ".join(names) if number <= MAX_NAMES else where)


def of(seen: accounts.Scope, *, now: datetime) -> Banner:
    """The global mode, the clusters that are stricter, and the current alarms."""
    installation = runtime.installation()
    mode = modes.strictest(settings.KCOVER_MODE, installation.mode)
    clusters = list(seen.clusters().order_by("name"))
    effective = {cluster.name: modes.strictest(mode, fleet.own_mode(cluster)) for cluster in clusters}
    differing = tuple(
        (cluster.name, fleet.own_mode(cluster), _why(cluster))
        for cluster in clusters
        if cluster.acted_on_by or effective[cluster.name] != mode
    )
    present = tuple(alarms.alarms(seen, clusters, now=now))
    by_mode = ((one, tuple(name for name, at in effective.items() if at == one)) for one in modes.MODES)
    return Banner(
        mode=mode,
        reason=installation.reason if installation.mode == mode else "",
        clusters=tuple((one, names) for one, names in by_mode if names),
        differing=differing,
        alarms=present,
    )


def _why(cluster: Cluster) -> str:
    """The reasons why a cluster's mode is stricter: its pause, or the other system or portal that acts there."""
    why = [cluster.pause_reason]
    if cluster.acted_on_by:
        why.append(localization.say(reasons.of("acted_on_by", system=cluster.acted_on_by)))
    if cluster.action_lease and not fleet.holds_lease(cluster.acts_until):
        holder = cluster.lease_holder
        missing = reasons.of("lease_elsewhere", holder=holder) if holder else reasons.of("lease_missing")
        why.append(localization.say(missing))
    return " ".join(text for text in why if text)
