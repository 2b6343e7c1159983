"""The stage of a node by its labels."""

import pytest

from kcover.nodes import node_stage
from kcover.nodes.node_stage import LABELLED, STANDBY_LABEL, STATE_LABEL, Stage


@pytest.mark.parametrize("stage", sorted(LABELLED))
def test_the_label_names_the_stage(stage: Stage) -> None:
    assert node_stage.of({STATE_LABEL: stage.value}) is stage
    assert node_stage.of({STATE_LABEL: stage.value, STANDBY_LABEL: "true"}) is stage


@pytest.mark.parametrize("value", ["", "healthy", "standby", "theirs", "PROBATION"])
def test_other_values_of_the_label_are_ignored(value: str) -> None:
    assert node_stage.of({STATE_LABEL: value}) is Stage.HEALTHY
    assert node_stage.of({STATE_LABEL: value, STANDBY_LABEL: "true"}) is Stage.STANDBY


def test_a_node_without_labels_is_healthy_or_a_standby() -> None:
    assert node_stage.of({}) is Stage.HEALTHY
    assert node_stage.of({STANDBY_LABEL: "false"}) is Stage.HEALTHY
    assert node_stage.of({STANDBY_LABEL: "true"}) is Stage.STANDBY
