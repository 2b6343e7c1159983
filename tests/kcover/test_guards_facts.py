"""What a budget or a window covers, as parameters of reasons."""

import pytest

from kcover import reasons
from kcover.decisions.guards import facts


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("all", "", reasons.of("scope_all")),
        ("cluster", "east", reasons.of("scope_cluster", name="east")),
        ("node", "gpu-1", reasons.of("scope_node", name="gpu-1")),
        ("pool", "a100", reasons.of("scope_pool", name="a100")),
        ("pool", "", reasons.of("scope_pool", name=reasons.of("pool_unnamed"))),
        ("rule", "", reasons.of("scope_rule", name="")),
    ],
)
def test_a_scope_is_a_reason_of_its_kind(kind: str, name: str, expected: reasons.Reason) -> None:
    assert facts.scope_name(kind, name) == expected
