"""Behaviour of a real API server only: compacted history, delays, and no state without controllers."""

import time

import pytest

from kcover_portal.kube import live, port
from kcover_portal.kube.verbs import list_watch
from tests.contract import apiserver as real

pytestmark = [pytest.mark.needs_cluster, real.needs_assets]


def test_a_history_that_is_forgotten_has_to_be_listed_again(apiserver):
    old = apiserver.cluster.list_events().resource_version
    made = [apiserver.node(apiserver.name(name)) for name in ("gpu-1", "gpu-2")]
    apiserver.etcd.compact(made[-1]["metadata"]["resourceVersion"])
    with pytest.raises(port.Expired):
        list(apiserver.cluster.watch_events(old, timeout=2))


def _forget(apiserver, place, *, version):
    """Makes the server forget the place in a list. Since 1.34 it keeps lists, and looks for compactions every 15 s."""
    apiserver.etcd.compact(version)
    page, deadline = f"/api/v1/nodes?limit=2&continue={place}", time.monotonic() + 60
    while apiserver.admin.ask("GET", page)[0] != 410:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_a_list_whose_next_page_is_forgotten_begins_again(apiserver, monkeypatch):
    monkeypatch.setattr(list_watch, "PAGE_SIZE", 2)
    names = [apiserver.name(f"gpu-{number}") for number in range(5)]
    for name in names:
        apiserver.node(name)
    ask, pages = apiserver.connection.request, []

    def request(method, path, kind, **more):
        page = ask(method, path, kind, **more)
        pages.append("continue" in more["query"])
        if len(pages) == 1:
            apiserver.merge("Node", names[0], {"metadata": {"labels": {"new": "1"}}})
            changed = apiserver.read("Node", names[0])["metadata"]["resourceVersion"]
            _forget(apiserver, page.metadata.continue_, version=changed)
        return page

    monkeypatch.setattr(apiserver.connection, "request", request)
    listed = {node.name: node for node in apiserver.cluster.list_nodes().items}
    assert set(names) <= set(listed)
    assert listed[names[0]].labels["new"] == "1"
    assert pages.count(False) == 2, "the list began twice"


def test_a_budget_that_no_controller_has_looked_at_blocks(apiserver):
    node = apiserver.name("gpu")
    uid = apiserver.pod("train", node=node, labels={"job": "x"})["metadata"]["uid"]
    apiserver.budget("keep-none", match={"job": "x"}, min_available=0)
    answer = apiserver.cluster.evict(apiserver.namespace, "train", uid=uid)
    assert isinstance(answer, port.Blocked)
    assert answer.budgets == ("keep-none",)
    assert "still being processed" in answer.reason
    apiserver.settle()
    assert apiserver.cluster.evict(apiserver.namespace, "train", uid=uid) == port.Evicted()


def test_the_clients_patience_outlasts_the_servers_own_retries(apiserver):
    """It tries 20 times in 10 seconds to evict a pending pod that has another uid, and then says so."""
    apiserver.pod("train", node=apiserver.name("gpu"), phase="Pending")
    patient = live.from_kubeconfig(apiserver.kubeconfig)
    assert patient.evict(apiserver.namespace, "train", uid="of-another-life") == port.Gone()
