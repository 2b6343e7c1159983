"""Policies as kubectl exports them: lists, and fields of the API server."""

from typing import Any

import pytest

from kcover.policy.document import exported

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.mark.parametrize("kind", ["List", "RescuePolicyList", "WarmStandbyPolicyList"])
def test_the_items_of_a_list(kind: str) -> None:
    assert exported.items({"kind": kind, "items": [1, 2]}) == [1, 2]


@pytest.mark.parametrize(
    "document",
    [None, [], "List", {}, {"kind": "RescuePolicy", "items": [1]}, {"kind": "List"}, {"kind": "List", "items": {}}],
)
def test_other_documents_are_no_lists(document: object) -> None:
    assert exported.items(document) is None


def test_fields_of_the_server_are_left_out() -> None:
    server = dict.fromkeys(exported.SERVER_METADATA, "x")
    notes = {LAST_APPLIED: "{}", "team": "a"}
    given: dict[str, Any] = {
        "kind": "RescuePolicy",
        "metadata": {"name": "a", "annotations": notes, **server},
        "status": {},
        "spec": {"rules": []},
    }
    assert exported.without_server_fields(given) == {
        "kind": "RescuePolicy",
        "metadata": {"name": "a", "annotations": {"team": "a"}},
        "spec": {"rules": []},
    }
    assert "status" in given
    assert given["metadata"]["annotations"] == notes


def test_an_annotation_of_kubectl_alone_leaves_none() -> None:
    given = {"metadata": {"name": "a", "annotations": {LAST_APPLIED: "{}"}}}
    assert exported.without_server_fields(given) == {"metadata": {"name": "a"}}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "text",
        {"metadata": None},
        {"metadata": {"annotations": None}},
        {"metadata": {"annotations": {"a": "b"}}},
    ],
)
def test_other_fields_stay(document: object) -> None:
    assert exported.without_server_fields(document) == document
