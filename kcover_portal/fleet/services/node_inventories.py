"""Writes the inventories of many nodes at once: drivers, kernels and GPUs."""

from collections.abc import Collection, Mapping
from datetime import datetime

from django.db import connection
from django.db.models import F

from kcover.faults import fault
from kcover_portal.fleet.models import Gpu
from kcover_portal.fleet.services import bulk_sql, stored_checks


def keep(of: Mapping[int, fault.Inventory], *, now: datetime) -> None:
    """Stores the inventories; GPUs that are no longer in one are deleted.

    Marks the serial numbers as unrecorded: a worker records placements, outside of this transaction.
    """
    if not of:
        return
    nodes = [
        {"node": node, "driver": inventory.driver[:60], "kernel": inventory.kernel[:120]}
        for node, inventory in of.items()
    ]
    gpus = [
        {
            "node": node,
            "place": gpu.index,
            "uuid": gpu.uuid,
            "pci": gpu.pci or "",
            "model": gpu.model[:120],
            "serial": gpu.serial[:60],
        }
        for node, inventory in of.items()
        for gpu in inventory.gpus
    ]
    bulk_sql.lock_nodes(of)
    bulk_sql.run(
        f"""UPDATE fleet_node SET driver = given.driver, kernel = given.kernel
            FROM {bulk_sql.given(node="bigint", driver="text", kernel="text")} WHERE fleet_node.id = given.node""",  # nosec B608
        [bulk_sql.rows(nodes)],
    )
    gone = bulk_sql.run(
        f"""DELETE FROM fleet_gpu WHERE node_id IN (SELECT node FROM {bulk_sql.given(node="bigint")})
            AND NOT EXISTS (SELECT 1 FROM {bulk_sql.given(node="bigint", uuid="text")}
                WHERE given.node = fleet_gpu.node_id AND given.uuid = fleet_gpu.uuid)
            RETURNING node_id, uuid, "index", pci""",  # nosec B608
        [bulk_sql.rows([{"node": node} for node in of]), bulk_sql.rows(gpus)],
    )
    if gone:
        present = {(node, gpu.pci) for node, inventory in of.items() for gpu in inventory.gpus}
        stored_checks.replaced([stored_checks.GpuSlot(*slot) for slot in gone], present)
    columns = {"node": "bigint", "place": "smallint", "uuid": "text", "pci": "text", "model": "text", "serial": "text"}
    bulk_sql.run(
        f"""INSERT INTO fleet_gpu (node_id, "index", uuid, pci, model, serial, seen_at)
            SELECT node, place, uuid, pci, model, serial, %s FROM {bulk_sql.given(**columns)} WHERE true
            ON CONFLICT (node_id, uuid) DO UPDATE SET "index" = excluded."index", pci = excluded.pci,
                model = excluded.model, serial = excluded.serial, seen_at = excluded.seen_at""",  # nosec B608
        [bulk_sql.moment(now), bulk_sql.rows(gpus)],
    )
    _keep_hardware(of, now=now)


def keep_of_boot(nodes: Collection[int], *, now: datetime) -> None:
    """Lets inventories count for the machines that the watch shows now, if their agents told them in the present boot.

    The agent of a new machine may be faster than the watch, and tells its inventory once.
    """
    if nodes:
        told = Gpu.objects.filter(node__in=nodes, node__boot_id__gt="", node__agent__boot_id=F("node__boot_id"))
        told.filter(seen_at__gte=F("node__agent__boot_seen_at")).update(seen_at=now)


def _keep_hardware(of: Mapping[int, fault.Inventory], *, now: datetime) -> None:
    hardware = [
        {
            "node": node,
            "machine": inventory.machine_serial[:64],
            "board": inventory.board_serial[:64],
            "nics": [
                {"serial": nic.serial[:64], "name": nic.name[:64], "pci": nic.pci or "", "model": nic.model[:120]}
                for nic in inventory.nics
            ],
        }
        for node, inventory in of.items()
    ]
    json_type = "jsonb" if connection.vendor == "postgresql" else "text"
    bulk_sql.run(
        f"""INSERT INTO fleet_hardware (node_id, machine_serial, board_serial, nics, changed_at, unrecorded)
            SELECT node, machine, board, nics, %s, %s
            FROM {bulk_sql.given(node="bigint", machine="text", board="text", nics=json_type)} WHERE true
            ON CONFLICT (node_id) DO UPDATE SET machine_serial = excluded.machine_serial,
                board_serial = excluded.board_serial, nics = excluded.nics,
                changed_at = excluded.changed_at, unrecorded = excluded.unrecorded""",  # nosec B608
        [bulk_sql.moment(now), True, bulk_sql.rows(hardware)],
    )
