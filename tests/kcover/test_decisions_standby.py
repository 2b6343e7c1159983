"""Warm standbys: which one takes over, and what goes over to it."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kcover import reasons
from kcover.decisions import standby
from kcover.policy import document


def spare(
    name: str, *, ready: bool = True, healthy: bool = True, promised: bool = False, **labels: str
) -> standby.Standby:
    return standby.Standby(name=name, labels=labels, ready=ready, healthy=healthy, promised=promised)


def rule(index: int, origin: Mapping[str, str], target: Mapping[str, str]) -> document.StandbyRule:
    return document.StandbyRule(index=index, origin=origin, target=target)


def choose(
    *standbys: standby.Standby,
    rules: tuple[document.StandbyRule, ...] = (),
    seed: int = 0,
    origin: str = "gpu-1",
    **labels: str,
) -> standby.ChosenStandby | standby.Shortage:
    return standby.choose(rules, standbys, origin=origin, labels=labels, chance=random.Random(seed))


def names(*standbys: standby.Standby, **more: Any) -> set[str]:
    """Every standby that chance may choose."""
    found = set()
    for seed in range(40):
        chosen = choose(*standbys, seed=seed, **more)
        assert isinstance(chosen, standby.ChosenStandby)
        found.add(chosen.name)
    return found


A, B, C = spare("a", kind="x"), spare("b", kind="x"), spare("c", kind="y")
X_FOR_TRAIN = rule(0, {"role": "train"}, {"kind": "x"})
Y_FOR_TRAIN = rule(1, {"role": "train"}, {"kind": "y"})


def test_a_rule_chooses_among_its_standbys_at_random() -> None:
    assert names(A, B, C, rules=(X_FOR_TRAIN,), role="train") == {"a", "b"}
    chosen = choose(A, B, C, rules=(X_FOR_TRAIN,), role="train")
    assert isinstance(chosen, standby.ChosenStandby)
    assert chosen.rule == 0
    assert [str(one) for one in chosen.because] == [
        f"Standby {chosen.name} (chosen at random from the 2 available that rule 1 allows)"
    ]


def test_the_first_rule_with_a_free_standby_decides() -> None:
    assert names(A, C, rules=(X_FOR_TRAIN, Y_FOR_TRAIN), role="train") == {"a"}
    assert names(A, C, rules=(Y_FOR_TRAIN, X_FOR_TRAIN), role="train") == {"a"}  # by place, not by delivery
    taken = spare("a", kind="x", promised=True)
    chosen = choose(taken, C, rules=(X_FOR_TRAIN, Y_FOR_TRAIN), role="train")
    assert isinstance(chosen, standby.ChosenStandby)
    assert (chosen.name, chosen.rule) == ("c", 1)


def test_a_standby_on_probation_is_not_free() -> None:
    found = choose(standby.Standby(name="a", labels={}, ready=True, healthy=True, promised=False, on_probation=True))
    assert isinstance(found, standby.Shortage)
    assert found.because[1:] == (reasons.of("node_on_probation", node="a"),)


def test_where_no_rule_finds_one_any_free_standby_is_taken() -> None:
    assert names(A, B, C, rules=(X_FOR_TRAIN,), role="serve") == {"a", "b", "c"}
    assert names(C, rules=(X_FOR_TRAIN,), role="train") == {"c"}
    assert names(A, B, C) == {"a", "b", "c"}
    chosen = choose(C, rules=(X_FOR_TRAIN,), role="train")
    assert isinstance(chosen, standby.ChosenStandby)
    assert chosen.rule is None
    assert [str(one) for one in chosen.because] == [
        "Standby c (chosen at random from the 1 available; no rule selected one)"
    ]


def test_all_labels_of_a_side_must_match() -> None:
    both = rule(0, {"role": "train", "zone": "b"}, {"kind": "x", "fast": "yes"})
    fast = spare("fast", kind="x", fast="yes")
    assert names(A, fast, rules=(both,), role="train", zone="b") == {"fast"}
    assert names(A, fast, rules=(both,), role="train", zone="c") == {"a", "fast"}
    assert names(A, fast, rules=(both,), role="train") == {"a", "fast"}


def test_an_empty_side_means_every_node() -> None:
    assert names(A, C, rules=(rule(0, {}, {"kind": "y"}),)) == {"c"}
    assert names(A, C, rules=(rule(0, {"role": "train"}, {}), rule(1, {}, {"kind": "y"})), role="train") == {"a", "c"}


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"ready": False}, "Standby a is not Ready."),
        ({"healthy": False}, "Standby a is not healthy."),
        ({"promised": True}, "Standby a is reserved for another node."),
        ({"ready": False, "healthy": False, "promised": True}, "Standby a is not Ready."),
        ({"healthy": False, "promised": True}, "Standby a is not healthy."),
    ],
)
def test_only_a_free_standby_is_taken(state: dict[str, bool], why: str) -> None:
    busy = spare("a", kind="x", **state)
    assert names(busy, B, rules=(X_FOR_TRAIN,), role="train") == {"b"}
    short = choose(busy, rules=(X_FOR_TRAIN,), role="train")
    assert isinstance(short, standby.Shortage)
    assert [str(one) for one in short.because] == [
        "None of 1 standbys is available. The plan continues without one.",
        why,
    ]


def test_no_standby_at_all() -> None:
    short = choose()
    assert isinstance(short, standby.Shortage)
    assert [str(one) for one in short.because] == ["None of 0 standbys is available. The plan continues without one."]


def test_a_standby_does_not_replace_itself() -> None:
    assert isinstance(choose(A, origin="a"), standby.Shortage)
    assert names(A, B, origin="a") == {"b"}


STANDBYS = st.lists(
    st.builds(
        standby.Standby,
        name=st.sampled_from("abcdef"),
        labels=st.dictionaries(st.sampled_from(["kind", "zone"]), st.sampled_from("xy")),
        ready=st.booleans(),
        healthy=st.booleans(),
        promised=st.booleans(),
        on_probation=st.booleans(),
    ),
    unique_by=lambda one: one.name,
)
SIDES = st.dictionaries(st.sampled_from(["kind", "zone"]), st.sampled_from("xy"))


@given(STANDBYS, st.lists(st.tuples(SIDES, SIDES), max_size=3), SIDES, st.integers(0, 99), st.randoms())
def test_the_chosen_standby_is_free_in_any_order(
    standbys: list[standby.Standby], sides: list[Any], labels: dict[str, str], seed: int, shuffling: Any
) -> None:
    rules = tuple(rule(index, origin, target) for index, (origin, target) in enumerate(sides))
    chosen = choose(*standbys, rules=rules, seed=seed, **labels)
    free = {one.name: one for one in standbys if one.ready and one.healthy and not (one.promised or one.on_probation)}
    if isinstance(chosen, standby.ChosenStandby):
        assert chosen.name in free
        if chosen.rule is not None:
            origin, target = sides[chosen.rule]
            assert origin.items() <= labels.items()
            assert target.items() <= free[chosen.name].labels.items()
    else:
        assert not free
    shuffling.shuffle(standbys)
    assert choose(*standbys, rules=rules, seed=seed, **labels) == chosen


# --- what goes over


def handover(labels: dict[str, str], *taints: standby.Taint, **more: Any) -> standby.Handover:
    given = {"standby_labels": {"kcover.io/standby": "true"}, "standby_taints": (), **more}
    return standby.handover(labels=labels, taints=taints, **given)


def test_roles_go_over() -> None:
    labels = {"node-role.kubernetes.io/gpu": "", "pool": "a", "rack": "7", "kubernetes.io/hostname": "gpu-1"}
    found = handover(labels, keys=("pool",))
    assert found == standby.Handover(
        labels={"node-role.kubernetes.io/gpu": "", "pool": "a"}, drop_labels=("kcover.io/standby",)
    )


def test_the_label_by_which_the_rule_knows_the_node_goes_over() -> None:
    by_rule = rule(0, {"role": "train", "gpu": "h100"}, {"gpu": "h200"})
    assert handover({"role": "train", "gpu": "h100", "rack": "7"}, rule=by_rule).labels == {"role": "train"}


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "nvidia.com/gpu.product",
        "kcover.io/state",
        "node.kubernetes.io/instance-type",
        "feature.node.kubernetes.io/cpu",
        "autopilot.ibm.com/gpuhealth",
        "beta.kubernetes.io/arch",
        "failure-domain.beta.kubernetes.io/zone",
        "node-restriction.kubernetes.io/trusted",
        "node-role.kubernetes.io/control-plane",
    ],
)
def test_facts_of_the_machine_never_go_over(key: str) -> None:
    assert handover({key: "x"}, keys=(key,), rule=rule(0, {key: "x"}, {})).labels == {}


def test_labels_that_are_already_set_are_not_written() -> None:
    there = {"kcover.io/standby": "true", "pool": "a", "team": "blue"}
    found = handover({"pool": "a", "team": "red"}, keys=("pool", "team"), standby_labels=there)
    assert found.labels == {"team": "red"}


def test_taints_that_keep_others_away_go_over() -> None:
    dedicated, ours = ("dedicated", "train", "NoSchedule"), ("trainy.konduktor.ai/faulty", "true", "NoSchedule")
    unready = ("node.kubernetes.io/unreachable", "", "NoExecute")
    faulty, role = ("kcover.io/unhealthy", "79", "NoSchedule"), ("node-role.kubernetes.io/gpu", "", "NoSchedule")
    control_plane = ("node-role.kubernetes.io/control-plane", "", "NoSchedule")
    found = handover({}, unready, ours, faulty, dedicated, role, control_plane, ours=(ours,))
    assert found.add_taints == (dedicated, role)
    addons, other = ("CriticalAddonsOnly", "true", "NoExecute"), ("dedicated.k8s.io/train", "", "NoSchedule")
    assert handover({}, addons, other).add_taints == (other,)
    assert handover({}, dedicated, standby_taints=(dedicated,)).add_taints == ()


def test_the_standby_stops_being_one() -> None:
    spare_taint, other = ("kcover.io/standby", "", "NoSchedule"), ("kcover.io/other", "", "NoSchedule")
    found = handover({}, standby_taints=(other, spare_taint))
    assert (found.drop_labels, found.drop_taints) == (("kcover.io/standby",), (spare_taint,))
    assert handover({}, standby_labels={}) == standby.Handover()
