"""The repairs that the steps of rescues open: one of a part, however many rescues ask for it."""

from datetime import datetime

from kcover import actors
from kcover_portal.accounts.models import Role
from kcover_portal.repairs import queries
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.services import desk, escalations
from kcover_portal.rescue.step import repair_desk


class RescueRepairs(repair_desk.RepairDesk):
    """See ``repair_desk.RepairDesk``."""

    def open(self, order: repair_desk.Order, *, now: datetime) -> int:
        """Reports the part that the rescue's faults name, unless a repair of it is open."""
        rescue = order.rescue
        part = escalations.part_of(rescue.node, rescue.incidents.order_by("pk"))
        known = queries.open_repairs().filter(
            cluster=rescue.cluster,
            node_name=rescue.node.name,
            part_kind=part.kind,
            part_serial=part.serial,
            part_slot=part.slot,
        )
        found = known.first()
        if found is not None:
            return found.pk
        row = desk.report(
            rescue.node,
            part=part,
            details={"vendor": order.vendor, "queue": order.queue},
            because=(order.because,),
            rescue=rescue,
            actor=actors.SYSTEM,
            role=Role.OPERATOR.value,
            now=now,
        )
        return row.pk

    def state(self, repair: int) -> str:
        """The row's state."""
        return Repair.objects.filter(pk=repair).values_list("state", flat=True).first() or ""
