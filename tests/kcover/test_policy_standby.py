"""WarmStandbyPolicy documents."""

import pytest

from kcover.policy import document
from tests.kcover.policy_documents import problems, standby


def test_a_warm_standby_policy_has_pairs_of_labels() -> None:
    pair = {"originNode": {"env": "dev", "app": "demo"}, "targetNode": {"env": "dev"}}
    for api in (document.KSYUN, document.KCOVER):
        assert document.read(standby(pair, {"originNode": {}, "targetNode": {"a/b": ""}}, api=api)) == (
            document.StandbyPolicy(
                name="s",
                api_version=api,
                matches=(
                    document.StandbyRule(index=0, origin={"env": "dev", "app": "demo"}, target={"env": "dev"}),
                    document.StandbyRule(index=1, origin={}, target={"a/b": ""}),
                ),
            )
        )


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        (standby(spec=None), ("spec",), "spec is missing: write spec: with a list of matches"),
        (
            standby(),
            ("spec", "matches"),
            "matches must be a list with at least one pair of originNode and targetNode",
        ),
        (
            standby(spec={"matches": [{"originNode": {}, "targetNode": {}}], "match": []}),
            ("spec", "match"),
            "Unknown key 'match': known keys are matches (did you mean matches?)",
        ),
        (
            standby(spec={"matches": "x"}),
            ("spec", "matches"),
            "matches must be a list with at least one pair of originNode and targetNode",
        ),
        (
            standby("x"),
            ("spec", "matches", 0),
            "A match must be a mapping with the labels of originNode and of targetNode.",
        ),
        (
            standby({"originNode": {}}),
            ("spec", "matches", 0),
            "targetNode is missing: write its labels, or {} for any",
        ),
        (
            standby({"originNode": {}, "targetNode": None}),
            ("spec", "matches", 0, "targetNode"),
            "targetNode is missing: write its labels, or {} for any",
        ),
        (
            standby({"originNode": ["a"], "targetNode": {}}),
            ("spec", "matches", 0, "originNode"),
            "labels must be a mapping of label names to strings",
        ),
        (
            standby({"originNode": {"a": 1}, "targetNode": {}}),
            ("spec", "matches", 0, "originNode", "a"),
            'A label value must be a short string, "true" for example, not 1.',
        ),
        (
            standby({"originNode": {}, "targetNode": {}, "orignNode": {}}),
            ("spec", "matches", 0, "orignNode"),
            "Unknown key 'orignNode': known keys are originNode, targetNode (did you mean originNode?)",
        ),
        (standby({"originNode": {}, "targetNode": {}}, metadata={}), ("metadata", "name"), None),
    ],
)
def test_an_invalid_warm_standby_policy(content: object, path: tuple[str | int, ...], message: str | None) -> None:
    [(found, said)] = problems(content)
    assert found == path
    assert message is None or said == message


def test_every_pair_is_checked() -> None:
    content = standby("x", {"originNode": {}, "targetNode": {}}, {"originNode": {}})
    assert [path for path, _ in problems(content)] == [("spec", "matches", 0), ("spec", "matches", 2)]
