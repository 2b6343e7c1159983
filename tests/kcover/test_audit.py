"""The vocabulary of the audit log: every class survives its entry, every verb has a title."""

import dataclasses
import json
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Union, get_args, get_origin

import pytest

from kcover import audit, reasons
from kcover.audit import codec
from kcover.decisions import decide
from kcover.plans import plan
from kcover.sentences import audit as titles

CLASSES = sorted({*audit.REGISTRY.values()}, key=lambda cls: cls.__name__)
AT = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
BECAUSE = reasons.of("pod_evicted")


def samples(hint: Any) -> list[Any]:
    """Values of the type: the empty ones, and one of every member of a union or enum."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return [value for member in get_args(hint) for value in samples(member)]
    if origin is tuple:
        return [(), tuple(samples(get_args(hint)[0]))]
    if origin is not None and issubclass(origin, Mapping):
        return [{}, {"some": samples(get_args(hint)[1])[-1]}]
    if hint is type(None):
        return [None]
    if hint is reasons.Reason:
        return [BECAUSE, reasons.both(BECAUSE, reasons.of("pod_gone"))]
    if hint is datetime:
        return [AT]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)
    if dataclasses.is_dataclass(hint):
        return instances(hint)
    return {str: ["text", ""], int: [0, 41], bool: [False, True]}.get(hint, [None, {"any": ["json", 1]}])


def instances(cls: Any) -> list[Any]:
    """One instance with the first sample of every field, and one more for every other sample."""
    choices = {name: samples(hint) for name, hint in codec.hints(cls).items()}
    first = {name: values[0] for name, values in choices.items()}
    return [cls(**first), *(cls(**{**first, name: value}) for name, values in choices.items() for value in values[1:])]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_survives_its_entry(cls: type[audit.Act]) -> None:
    for act in instances(cls):
        stored = act.to_entry()
        as_json = dataclasses.replace(stored, data=json.loads(json.dumps(stored.data)))
        assert audit.from_entry(as_json) == act
        assert stored.subject or "" in dataclasses.asdict(act).values()
        assert stored.data.keys().isdisjoint({"verb", "subject"})


def test_every_verb_belongs_to_one_class_and_fits_its_column() -> None:
    assert sum(len(cls.verbs()) for cls in CLASSES) == len(audit.REGISTRY)
    assert max(map(len, audit.REGISTRY)) <= 60


def test_every_verb_has_a_title() -> None:
    calls = {f"{call}.{phase}" for call in titles.CALLS for phase in titles.PHASES}
    assert {*titles.TITLES, *calls} == audit.REGISTRY.keys()
    for cls in CLASSES:
        for act in instances(cls):
            assert str(act.title())


def test_an_unknown_verb_is_an_error() -> None:
    with pytest.raises(audit.UnknownVerb, match=r"rescue\.teleported"):
        audit.from_entry(audit.Columns(verb="rescue.teleported", subject="rescue 1"))


def test_a_verb_has_one_class() -> None:
    with pytest.raises(ValueError, match=r"step\.done"):

        class Second(audit.StepDone, verb="step.done"):
            """The same verb again."""


def test_fields_with_their_default_are_not_stored() -> None:
    opened = audit.RescueOpened(
        rescue=7, node="gpu-1", steps=(plan.PlannedStep(name="cordon"),), plan_hash="h", state="running"
    )
    assert opened.to_entry() == audit.Columns(
        verb="rescue.opened",
        subject="rescue 7",
        node="gpu-1",
        rescue=7,
        data={"steps": [{"name": "cordon"}], "plan_hash": "h", "state": "running"},
    )


def test_the_verb_of_a_call_names_the_call() -> None:
    failed = audit.ClusterCallFailed(
        call=audit.Call.EVICT, target="pod a/b", because=BECAUSE, held_back=True, rescue=7, step=2, name="drain"
    )
    stored = failed.to_entry()
    assert (stored.verb, stored.subject) == ("evict.failed", "pod a/b")
    assert stored.data == {"because": BECAUSE.to_json(), "held_back": True, "step": 2, "name": "drain"}


def test_the_explanation_joins_the_reason_and_the_withdrawals() -> None:
    withdrawn = reasons.of("pod_gone")
    ended = audit.RescueEnded(
        rescue=7,
        node="gpu-1",
        state=audit.RescueEnd.CANCELLED,
        outcome="cancelled",
        needs_human=False,
        because=BECAUSE,
        withdrawn=withdrawn,
    )
    assert ended.explanation == reasons.both(BECAUSE, withdrawn)
    assert audit.StepRetried(rescue=7, node="", step=0, name="drain", plan_hash="h", reason="so").own_words == "so"
    assert audit.PasswordChanged(user="ann").explanation is None


def test_a_decision_has_every_answer_of_the_core() -> None:
    assert {answer.value for answer in audit.DecisionAnswer} == set(decide.ANSWERS)
