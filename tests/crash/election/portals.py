"""Two portals with databases of their own, each with a real ``watch``, which manage the same clusters."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from simulator.kubeapi import kubeconfig
from tests.story import product as products
from tests.story.product import ROOT, Product

END_SECONDS = 40.0  # a watch finishes the request that it waits for


class Portal:
    """One portal: its database and its watch."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._watch: subprocess.Popen[bytes] | None = None
        self._database = product.environment["KCOVER_DATABASE_URL"]

    def register(self, urls: Sequence[str], *, token: str) -> None:
        """Adds the clusters c0, c1 ..., paused and with the election on."""
        commands = [["migrate", "--verbosity", "0"]]
        for number, url in enumerate(urls):
            path = self._product.folder / f"kubeconfig-{number}"
            kubeconfig.write(path, server=url, token=token)
            commands.append(["cluster", "add", f"c{number}", "--kubeconfig", str(path)])
        self._product.manage_all(commands)
        self._execute("UPDATE fleet_cluster SET action_lease = true, mode = 'paused'")

    def start(self) -> None:
        """Starts the watch."""
        with (self._product.folder / "watch.log").open("ab") as log:
            self._watch = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.election.watch"],
                cwd=ROOT,
                env=self._product.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9."""
        assert self._watch is not None
        self._watch.kill()
        self._watch.wait()

    def stop(self) -> None:
        """SIGTERM; a watch that does not end on it is a failure of the test."""
        if self._watch is None or self._watch.poll() is not None:
            return
        self._watch.send_signal(signal.SIGTERM)
        try:
            self._watch.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def set_mode(self, mode: str, numbers: Sequence[int]) -> None:
        """Pauses the portal in clusters, or lets it act."""
        self._execute("UPDATE fleet_cluster SET mode = %s WHERE name = ANY(%s)", mode, [f"c{one}" for one in numbers])

    def acts(self) -> set[int]:
        """The clusters in which the portal acts at this moment."""
        rows = self._execute("SELECT name FROM fleet_cluster WHERE acts_until > clock_timestamp()")
        return {int(name.removeprefix("c")) for (name,) in rows}

    def log(self) -> str:
        """What the watch has printed."""
        return (self._product.folder / "watch.log").read_text(errors="replace")

    def _execute(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._database, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def two(folder: Path) -> Iterator[tuple[Portal, Portal]]:
    """Two portals that are not registered anywhere yet."""
    with contextlib.ExitStack() as stack:
        made = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            portal = Portal(stack.enter_context(products.on_postgres(folder / name)))
            stack.callback(portal.stop)
            made.append(portal)
        yield made[0], made[1]
