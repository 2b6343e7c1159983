"""What the Celery application does with database connections, and at the start of a worker."""

import sys

import pytest
from celery.fixups.django import DjangoWorkerFixup
from celery.signals import task_postrun, task_prerun
from django.db import connection

from kcover_portal.celery import app, import_kubernetes


@app.task(name="tests.nothing")
def nothing() -> None:
    """A task like any."""


@pytest.fixture
def worker():
    """What Celery installs in a worker."""
    fixup = DjangoWorkerFixup(app).install()
    yield
    task_prerun.disconnect(fixup.on_task_prerun)
    task_postrun.disconnect(fixup.on_task_postrun)


@pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread")
@pytest.mark.django_db(transaction=True)
def test_a_task_leaves_its_connection_to_the_next_unless_it_is_broken(worker):
    connection.ensure_connection()
    connection.close_at = None  # as while CONN_MAX_AGE has not passed
    before = connection.connection
    task_prerun.send(nothing)
    task_postrun.send(nothing)
    assert connection.connection is before
    before.close()
    connection.errors_occurred = True  # as after a statement that failed
    task_prerun.send(nothing)
    assert connection.connection is None  # the next statement makes a new one


def test_a_worker_imports_the_kubernetes_library_before_its_first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kubernetes.config", raising=False)
    import_kubernetes()  # which Celery calls while the worker starts
    assert "kubernetes.config" in sys.modules
