"""Events about incidents, while a source's report holds some of their rows."""

import threading

import pytest
from django.db import connection, transaction

from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.engine import kube_events
from tests.portal.rescue.world import World
from tests.waiting import until


@pytest.mark.postgres(reason="two transactions lock rows in two orders")
@pytest.mark.django_db(transaction=True)
def test_a_report_that_locks_incidents_in_another_order_does_not_deadlock() -> None:
    world = World(policy="", nodes=2)
    try:
        for name in ("gpu-1", "gpu-2"):
            world.fault(node=name)
        first, second = Incident.objects.order_by("pk")
        errors: list[Exception] = []

        def announce() -> None:
            try:
                kube_events.write_incidents([first.pk, second.pk], now=world.now)
            except Exception as error:
                errors.append(error)
            finally:
                connection.close()

        with transaction.atomic():
            Incident.objects.select_for_update().get(pk=second.pk)
            writer = threading.Thread(target=announce)
            writer.start()
            until(is_somebody_waiting)
            Incident.objects.select_for_update().get(pk=first.pk)
        writer.join(60)
        assert not errors
        assert not Incident.objects.filter(announced_at=None).exists()
    finally:
        world.uninstall()


def is_somebody_waiting() -> bool:
    """Returns whether another connection to this database waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction reads it once otherwise
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])
