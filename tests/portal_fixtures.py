"""A pytest plugin: the fixtures of all tests that use Django; tests/conftest.py registers it where Django is set up."""

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.utils import translation
from pytest_django import DjangoDbBlocker

from tests import migrated, moment
from tests.portal.ledger import tampered_rows

IN_PROCESS = [Path(__file__).parent / place for place in ("portal", "invariants")]


def pytest_configure() -> None:
    """Leaves out costs of each test: Argon2, slow on purpose, the list of static files of each new client, and
    statements that are prepared again."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.WHITENOISE_AUTOREFRESH = True
    settings.WHITENOISE_USE_FINDERS = True  # whether or not somebody has collected static files in this checkout
    settings.STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
    connection_created.connect(_keep_every_statement, weak=False)


def _keep_every_statement(connection: BaseDatabaseWrapper, **_: object) -> None:
    """All tests of a worker share a connection. It would prepare most statements, drop them and prepare them again."""
    if connection.vendor == "postgresql":
        connection.connection.prepared_max = 2000


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests that need PostgreSQL where the tests' database is SQLite."""
    needs = item.get_closest_marker("postgres")
    if needs is not None and connection.vendor != "postgresql":
        pytest.skip(needs.kwargs["reason"])


@pytest.fixture(autouse=True)
def _moment(request: pytest.FixtureRequest) -> Iterator[None]:
    """Moves the clock of this process to that of the tests' worlds, except for tests that need the true clock."""
    real = request.node.get_closest_marker("real_clock")
    if real is not None or not any(request.path.is_relative_to(place) for place in IN_PROCESS):
        yield
        return
    with moment.starting_at(moment.START):
        yield


@pytest.fixture(autouse=True)
def _language_of_its_own() -> Iterator[None]:
    """A request sets the language of its thread, and the next test may make no request: it starts with the default."""
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def _clients_of_its_own() -> Iterator[None]:
    """A cluster of the next test may get the key of one of this test, whose client must not answer for it."""
    connections = sys.modules.get("kcover_portal.kube.connections")
    kept = dict(connections._clients) if connections is not None else {}
    yield
    connections = sys.modules.get("kcover_portal.kube.connections")
    if connections is not None:
        connections._clients.clear()
        connections._clients.update(kept)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Lets each worker's test database begin as a copy of one that is migrated."""
    if connection.vendor == "postgresql":
        connection.settings_dict["TEST"]["TEMPLATE"] = migrated.template()
        yield
        return
    # The database in memory, by the name that Django gives it, lasts while a connection to it is open.
    with contextlib.closing(sqlite3.connect("file:memorydb_default?mode=memory&cache=shared", uri=True)) as kept:
        with contextlib.closing(sqlite3.connect(migrated.sqlite_file(tmp_path_factory))) as file:
            file.backup(kept)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Lets tests flush the guarded ledger. Closes the connections that pool threads of asgiref and Celery keep open,
    so that PostgreSQL can drop the test database."""
    with tampered_rows.flush_empties_the_ledger():
        yield
    with django_db_blocker.unblock():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
