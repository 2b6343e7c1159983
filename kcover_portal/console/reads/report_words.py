"""The words of reports: names of groups, and numbers."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy

from kcover.reports.downtime import Phase
from kcover.reports.records import By
from kcover_portal.console import fault_names, part_names
from kcover_portal.console.reads import step_facts

PHASES: Final[Mapping[Phase, str | Promise]] = {
    Phase.NO_RESCUE: gettext_lazy("Open fault, no rescue"),
    Phase.WAITING: gettext_lazy("Rescue waits"),
    Phase.ISOLATE: gettext_lazy("Isolation"),
    Phase.MOVE: gettext_lazy("Moving the work"),
    Phase.REPAIR: gettext_lazy("Reset, reboot, other repairs"),
    Phase.PROVE: pgettext_lazy("phase", "Verification"),
    Phase.RETURN: gettext_lazy("Return to service"),
    Phase.AFTER_RESCUE: gettext_lazy("Isolated after its rescue"),
    Phase.DESK: gettext_lazy("At the repair desk"),
}
GROUPS: Final[Mapping[By, str | Promise]] = {
    By.CODE: gettext_lazy("Fault"),
    By.POOL: gettext_lazy("Pool"),
    By.PART: pgettext_lazy("part", "Part"),
    By.POLICY: gettext_lazy("Policy"),
    By.RULE: gettext_lazy("Rule"),
    By.PHASE: gettext_lazy("Phase"),
    By.CLUSTER: gettext_lazy("Cluster"),
}


def group_name(by: By, key: str) -> str:
    if by is By.PHASE:
        return str(PHASES[Phase(key)])
    if by is By.CODE:
        return cause(key)
    if by is By.PART:
        return str(part_names.NAMES.get(key, key))
    if not key and by in (By.POLICY, By.RULE):
        return _("No policy")
    return key.removesuffix("/") if by is By.POOL else key


def cause(key: str) -> str:
    """The name of a fault such as ``xid 79``."""
    return fault_names.fault_name(*key.split(" ", 1)) if " " in key else _("By hand, without a fault")


def duration(time: timedelta | None) -> str:
    """A time in its two largest units."""
    return "–" if time is None else step_facts.duration(time)


def percent(share: float | None, *, digits: int = 1) -> str:
    """A share of 0 to 1 in per cent."""
    return "–" if share is None else f"{number_format(round(share * 100, digits), digits)} %"


def count(value: float | None) -> str:
    """A number, with one decimal if it is small."""
    if value is None:
        return "–"
    return number_format(value, 0 if value == round(value) or abs(value) >= 100 else 1, force_grouping=True)
