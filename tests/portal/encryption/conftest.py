"""Key files, and a cluster whose kubeconfig is encrypted with the first key."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from kcover_portal.encryption import keyring
from kcover_portal.fleet.models import Cluster

KeyFile = Callable[..., None]
Become = Callable[[str], None]


@pytest.fixture
def use_keys(tmp_path: Path, settings: object) -> KeyFile:
    """Configures these lines as the key file."""
    made = iter(range(100))

    def use(*lines: str) -> None:
        path = tmp_path / f"keys-{next(made)}"
        path.write_text("\n".join(lines), encoding="utf-8")
        settings.KCOVER_ENCRYPTION_KEY_FILE = str(path)  # type: ignore[attr-defined]

    return use


@pytest.fixture
def no_keys(settings: object) -> None:
    settings.KCOVER_ENCRYPTION_KEY_FILE = ""  # type: ignore[attr-defined]
    settings.KCOVER_OWN_ENCRYPTION_KEY = None  # type: ignore[attr-defined]


@pytest.fixture
def first() -> str:
    return keyring.new_key()


@pytest.fixture
def second() -> str:
    return keyring.new_key()


@pytest.fixture
def become(tmp_path: Path, settings: Any, use_keys: KeyFile, first: str) -> Become:
    """The settings of a process: worker with the engine's key, or web without it."""
    use_keys(first)
    path = tmp_path / "engine-keys"
    path.write_text(keyring.new_key())

    def become(process: str) -> None:
        settings.KCOVER_ENGINE_KEY_FILE = str(path) if process == "worker" else ""
        settings.KCOVER_CLUSTER_ACCESS = "engine" if process == "worker" else "read"

    return become


@pytest.fixture
def east(db: None, use_keys: KeyFile, first: str, now: datetime) -> Cluster:
    use_keys(first)
    return Cluster.objects.create(name="east", created_at=now, kubeconfig="token: hush", decision_secret="s" * 16)


def column(name: str, *, table: str = "fleet_cluster", row: str = "east") -> str:
    """What the database has."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {name} FROM {table} WHERE name = %s", [row])
        return str(cursor.fetchone()[0])


def write(name: str, value: str, *, row: str = "east") -> None:
    """Writes past the portal, as somebody with the database can."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE fleet_cluster SET {name} = %s WHERE name = %s", [value, row])
