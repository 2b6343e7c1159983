"""An upgrade stops `live` while the agents of every node wait for commands: they come back, and its log stays short."""

import os
import signal

import pytest

from tests.story.conftest import place

NODES = 24


def test_live_stops_without_tracebacks_and_the_agents_come_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    with place("postgres", tmp_path_factory) as product:
        product.set_up(nodes=NODES)

        def reporting() -> list[str]:
            rows = product.get("/api/v1/nodes?page_size=100")["results"]
            return [row["name"] for row in rows if row["agent"]]

        product.wait(lambda: len(reporting()) == NODES, "every agent to report")
        live = product.processes["live"]
        os.killpg(live.pid, signal.SIGTERM)
        assert live.wait(60) in (0, -signal.SIGTERM)
        text = (product.folder / "live.log").read_text()
        assert "Traceback" not in text, text
        product.start_processes()
        for node in reporting():
            product.inject(node, 43)

        def faulty() -> set[str]:
            return {row["node"] for row in product.get("/api/v1/incidents?kind=xid&page_size=100")["results"]}

        product.wait(lambda: len(faulty()) == NODES, "every fault")
