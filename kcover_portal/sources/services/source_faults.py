"""What a source reports as a fault of a node, with the times between which it may have happened."""

from datetime import datetime, timedelta

from kcover.sources import settings
from kcover.sources.observation import LONG_AGO, Observation
from kcover.values import moments
from kcover_portal.incidents import services as incidents
from kcover_portal.sources.models import Source

MAX_AGE = timedelta(days=1)  # of an event that can still open an incident; older ones are history


def _earliest(source: Source, one: Observation, *, ahead: timedelta, now: datetime) -> datetime:
    """The fault did not happen before. Without any time it may be as old as events are that still count."""
    at = one.earliest or one.seen_at
    if at in (None, LONG_AGO):
        return now - MAX_AGE
    return moments.before(at, settings.doubt(source.kind, source.settings) + ahead)


def _lasts(one: Observation) -> bool:
    """An alert, a condition and a state of gpud last. An Xid is a moment, also where a state still shows the last."""
    if one.kind in incidents.STATES:
        return True
    return one.kind in incidents.LASTING and one.earliest is not None and one.alias is None


def _is_read(source: Source, one: Observation) -> bool:
    """Returns whether the times are those at which the portal looked, by its own clock."""
    return one.earliest is not None and source.kind == Source.Kind.CONDITIONS


def _doubt(source: Source, one: Observation) -> timedelta:
    """For how long after the start of a boot the state may be one of the boot before."""
    doubt = settings.doubt(source.kind, source.settings)
    has_time = one.seen_at is not None and one.earliest is None
    return doubt if has_time else max(doubt, settings.UNTIMED)


def fault_of(source: Source, one: Observation, *, ahead: timedelta, now: datetime) -> incidents.SourceFault:
    """The fault that the source reports. ``ahead``: by how much its clock is ahead of the portal's at least."""
    return incidents.SourceFault(
        kind=one.kind,
        code=one.code,
        pci=one.device.slot or None,
        gpu_uuid=one.device.uuid or None,
        unit=one.device.unit,
        part=one.device.part,
        message=one.message,
        # A state without any time stands now, whenever it began.
        seen_at=one.seen_at or (now if one.earliest is None and _lasts(one) else None),
        source=source.kind,
        witness=source.name,
        severity=one.severity,
        weight=one.weight,
        alias=f"xid {one.alias}" if one.alias else "",
        advice=one.advice[:200],
        earliest=_earliest(source, one, ahead=ahead, now=now),
        uptime=one.uptime,
        doubt=_doubt(source, one) + ahead if _lasts(one) else None,
        unheard=one.unheard,
        by_node_clock=source.kind in settings.NODE_CLOCKS and not _is_read(source, one),
    )
