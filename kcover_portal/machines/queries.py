"""Reads of machine drivers."""

from kcover_portal.fleet.models import Node
from kcover_portal.machines.models import Driver


def named(name: str) -> Driver | None:
    """The driver of this name; None if there is none."""
    return Driver.objects.select_related("cluster").filter(name=name).first()


def driver_of(node: Node) -> Driver | None:
    """The driver for a node: the first by name that lists it, then one for its pool, then one for all pools.

    None if there is none.
    """
    drivers = list(Driver.objects.filter(cluster=node.cluster_id, enabled=True).order_by("name"))
    listing = (driver for driver in drivers if node.name in driver.setting("table"))
    of_pool = (driver for driver in drivers if node.pool and node.pool in driver.setting("pools"))
    general = (driver for driver in drivers if driver.url and not driver.setting("pools"))
    return next(listing, None) or next(of_pool, None) or next(general, None)
