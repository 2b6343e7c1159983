"""Token reviews: the identity of a token."""

import pytest

from tests.contract import over_http

AUDIENCE = "kcover-portal"


@pytest.fixture
def pod(rig):
    node = rig.name("gpu")
    rig.node(node)
    meta = {"name": "agent", "namespace": rig.namespace}
    rig.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    return rig.pod("agent", node=node, account="agent")


def test_a_token_names_its_account_pod_and_node(rig, pod):
    token = rig.token("agent", audience=AUDIENCE, pod=pod)
    who = rig.cluster.review_token(token, audiences=[AUDIENCE])
    assert who.username == f"system:serviceaccount:{rig.namespace}:agent"
    assert who.service_account == f"{rig.namespace}/agent"
    assert who.audiences == (AUDIENCE,)
    assert (who.pod_name, who.pod_uid) == ("agent", pod["metadata"]["uid"])
    assert who.node_name == (rig.name("gpu") if rig.names_nodes else None)
    assert "system:serviceaccounts" in who.groups


def test_a_token_for_another_audience_is_not_accepted(rig, pod):
    token = rig.token("agent", audience="vault", pod=pod)
    assert rig.cluster.review_token(token, audiences=[AUDIENCE]) is None


def test_an_unissued_token_is_not_accepted(rig):
    assert rig.cluster.review_token(over_http.unused_token(), audiences=[AUDIENCE]) is None


def test_a_review_is_no_write(rig, pod):
    before = rig.writes()
    rig.cluster.review_token(rig.token("agent", audience=AUDIENCE, pod=pod), audiences=[AUDIENCE])
    assert rig.writes() == before
