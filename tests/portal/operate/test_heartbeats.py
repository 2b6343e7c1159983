"""Worker, beat and watch touch a file while their loops turn, also while they wait for a server."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from celery.concurrency.thread import TaskPool

from kcover_portal.celery import app
from kcover_portal.operate import heartbeats, worker_consumer
from tests import servers, waiting
from tests.deploy.manifests import PODS, only

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def file(settings, tmp_path, monkeypatch) -> Path:
    """The file of this process."""
    settings.KCOVER_HEARTBEAT_FILE = str(tmp_path / "heartbeat")
    monkeypatch.setattr(heartbeats, "EVERY_SECONDS", 0.0)
    return tmp_path / "heartbeat"


@contextmanager
def running(name: str, redis: str, folder: Path) -> Iterator[Path]:
    """A process with the command of its pod. Gives its file."""
    command = [sys.executable, *only(PODS[name]["containers"])["command"][1:]]
    command = [str(folder / "beat") if word == "/tmp/beat" else word for word in command]
    environment = os.environ | {
        "KCOVER_DATABASE_URL": f"sqlite:///{folder}/none.sqlite3",
        "KCOVER_REDIS_URL": redis,
        "KCOVER_SECRET_KEY": "only-for-tests-8bdfc9d2a4e64fd6a1f8",
        "KCOVER_HEARTBEAT_FILE": str(folder / "heartbeat"),
    }
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield folder / "heartbeat"
    finally:
        process.kill()
        process.wait()


def goes_on(file: Path) -> None:
    """Waits for two heartbeats."""
    waiting.until(file.exists, "the first heartbeat")
    first = file.stat().st_mtime_ns
    waiting.until(lambda: file.stat().st_mtime_ns > first, "the next heartbeat")


@pytest.mark.parametrize("name", ["worker", "beat"])
def test_a_process_that_waits_for_redis_shows_that_it_lives(name, tmp_path) -> None:
    with running(name, NOWHERE, tmp_path) as file:
        goes_on(file)


@pytest.mark.parametrize("name", ["worker", "beat", "watch"])
def test_a_process_shows_that_it_lives(name, tmp_path) -> None:
    """None of them finds a table in this database, as in an outage."""
    with servers.redis() as redis, running(name, redis, tmp_path) as file:
        goes_on(file)


def test_a_worker_whose_threads_all_hang_shows_no_life(file) -> None:
    pool = TaskPool(1, app=app)
    pool.on_start()
    one = worker_consumer.Consumer.__new__(worker_consumer.Consumer)  # the rest of it wants a whole worker
    one.pool = pool
    hangs = threading.Event()
    pool.apply_async(hangs.wait, callback=lambda _: None)
    one._hand_to_pool()
    assert not file.exists()
    hangs.set()
    waiting.until(file.exists, "the heartbeat after it")
    pool.on_stop()


def test_without_a_file_and_with_one_that_cannot_be_written_nothing_happens(settings, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(heartbeats, "EVERY_SECONDS", 0.0)
    for path in ("", str(tmp_path / "missing" / "heartbeat")):
        settings.KCOVER_HEARTBEAT_FILE = path
        heartbeats.touch()
    assert list(tmp_path.iterdir()) == []


def test_a_heartbeat_is_written_every_few_seconds_only(settings, tmp_path, monkeypatch) -> None:
    settings.KCOVER_HEARTBEAT_FILE = str(tmp_path / "heartbeat")
    monkeypatch.setattr(heartbeats, "_touched_at", 0.0)
    heartbeats.touch()
    (tmp_path / "heartbeat").unlink()
    heartbeats.touch()
    assert not (tmp_path / "heartbeat").exists()
