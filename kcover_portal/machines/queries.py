"""Reads of machine drivers."""

from collections.abc import Collection

from kcover.machines import machine_drivers
from kcover_portal.fleet.models import Node
from kcover_portal.machines.models import Driver


def driver_of(node: Node, kinds: Collection[str] = machine_drivers.POWERING) -> Driver | None:
    """The driver of one of these kinds for a node. None if there is none.

    It is the first by name that lists the node, then one for its pool, then one for all pools.
    """
    rows = Driver.objects.filter(cluster=node.cluster_id, enabled=True, kind__in=kinds)
    drivers = list(rows.select_related("cluster").order_by("name"))
    listing = (driver for driver in drivers if node.name in driver.setting("table"))
    of_pool = (driver for driver in drivers if node.pool and node.pool in driver.setting("pools"))
    general = (driver for driver in drivers if _is_general(driver))
    return next(listing, None) or next(of_pool, None) or next(general, None)


def _is_general(driver: Driver) -> bool:
    """Returns whether it is for all pools. A driver with neither address nor pools is for the nodes of its table."""
    return bool(driver.url or driver.kind in machine_drivers.IN_CLUSTER) and not driver.setting("pools")
