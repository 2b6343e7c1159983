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

MAX_NAMES: Final = 2  # clusters of one mode that the strip names; more are a number
TONES: Final = ("bad", "ask", "hold", "ok")  # of modes and alarms, the worst first


@dataclass(frozen=True, slots=True)
class Sign:
    """One statement of the strip: a mode or an alarm, and where it holds (empty: everywhere)."""

    look: Badge
    where: str = ""

    @property
    def text(self) -> str:
        return _("%(where)s: %(what)s") % {"where": self.where, "what": self.look.label} if self.where else self.label

    @property
    def label(self) -> str:
        return str(self.look.label)


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
        """The statements of the strip, the worst first: a narrow screen cuts the last ones."""
        found = dict.fromkeys([*self._modes(), *map(_sign, self.alarms)])
        return sorted(found, key=lambda sign: [*TONES, sign.look.tone].index(sign.look.tone))

    @property
    def summary(self) -> str:
        """The whole strip in one line."""
        return " · ".join(sign.text for sign in self.signs)

    def _modes(self) -> Iterator[Sign]:
        if len(self.clusters) < 2:
            yield Sign(presentation.of("mode", self.clusters[0][0] if self.clusters else self.mode))
            return
        for mode, names in self.clusters:
            number = len(names)
            where = ngettext("%(n)d cluster", "%(n)d clusters", number) % {"n": number}
            yield Sign(presentation.of("mode", mode), " · ".join(names) if number <= MAX_NAMES else where)


def _sign(alarm: alarms.Alarm) -> Sign:
    return Sign(alarm.look, " · ".join(name for name in (alarm.cluster, alarm.part) if name))


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
