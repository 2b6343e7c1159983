"""Scopes: what is read, what is refused, and what they cover."""

from typing import Any

import pytest

from kcover.nodes import scopes


@pytest.mark.parametrize(
    ("document", "field", "code"),
    [
        ({"nodes": ["a"], "pools": ["b"]}, "pools", "scope_one_kind"),
        ({"nodes": []}, "nodes", "scope_empty"),
        ({"nodes": "a"}, "nodes", "scope_empty"),
        ({"nodes": [1]}, "nodes", "scope_name_invalid"),
        ({"nodes": ["a\0"]}, "nodes", "scope_name_invalid"),
        ({"nodes": ["x"] * (scopes.MAX_NODES + 1)}, "nodes", "scope_too_long"),
        ({"pools": [""]}, "pools", "scope_name_invalid"),
        ({"labels": {}}, "labels", "scope_empty"),
        ({"labels": " , "}, "labels", "scope_empty"),
        ({"labels": 3}, "labels", "scope_empty"),
        ({"labels": [None]}, "labels", "label_selector_invalid"),
        ({"labels": {"a": 1}}, "labels", "label_selector_invalid"),
        ({"labels": ["a b=c"]}, "labels", "label_selector_invalid"),
        ({"labels": ["a=b=c"]}, "labels", "label_selector_invalid"),
        ({"labels": [f"k{n}" for n in range(scopes.MAX_SELECTORS + 1)]}, "labels", "scope_too_long"),
        ({"domains": {"pool": ["a"]}}, "domains", "scope_one_domain"),
        ({"domains": {"rack": ["a"], "leaf": ["b"]}}, "domains", "scope_one_domain"),
        ({"domains": ["rack"]}, "domains", "scope_one_domain"),
        ({"domains": {"rack": []}}, "domains", "scope_empty"),
    ],
)
def test_invalid_scopes_are_refused(document: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(scopes.ScopeError) as refused:
        scopes.parse(document)
    assert (refused.value.field, refused.value.reason.code) == (field, code)


def test_a_scope_is_shown_with_its_first_names() -> None:
    assert scopes.parse({"nodes": ["a", "b", "a", "c", "d"]}).shown == ("node", "a, b, c, …")
    assert scopes.parse({"labels": {"zone": "z1", "gpu": None}}).shown == ("label", "zone=z1, gpu")
    assert scopes.parse({"domains": {"leaf": ["l1"]}}).shown == ("leaf", "l1")
    assert scopes.parse({"cluster": "c1", "nodes": None}).shown == ("", "")


def test_people_of_one_pool_see_no_names_of_others() -> None:
    nodes = scopes.parse({"nodes": ["ours-1", "theirs-9"]})
    assert nodes.shown_for(name="ours-1", pool="red") == ("node", "ours-1")
    assert scopes.parse({"pools": ["blue", "red"]}).shown_for(name="ours-1", pool="red") == ("pool", "red")
    labels = scopes.parse({"labels": {"zone": "z1"}})
    assert labels.shown_for(name="ours-1", pool="red") == labels.shown
