"""The descriptions of actions: names, order, what each means for a node, and what a step is told and remembers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover import actions, reasons, sentences
from kcover.values.kube_names import ObjectName

ASKED = reasons.of("agent_command", command="1")
AT = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
SPECS = pytest.mark.parametrize("spec", actions.ACTIONS.values(), ids=lambda spec: spec.name)


def test_the_fixed_order() -> None:
    assert [spec.name for spec in actions.in_order()] == [
        *("cordon", "taint", "label", "quarantine_device"),
        "notify",
        *("standby", "restart_jobs", "stop_jobs", "drain"),
        *("webhook", "reset", "reboot", "power_cycle", "offline", "replace", "repair", "ready"),
        *("run_checks", "verify", "validate"),
        *("uncordon", "release", "end_exclusion"),
        *("escalate", "exclude"),
    ]


def test_every_action_has_a_place_of_its_own() -> None:
    places = [spec.place for spec in actions.ACTIONS.values()]
    assert len(set(places)) == len(places)


def test_policies_list_the_five_of_kce_first() -> None:
    kinds = actions.in_policies()
    assert list(kinds)[:5] == ["cordon", "drain", "reboot", "enableWarmStandby", "unCordon"]
    assert [name for name, kind in kinds.items() if not kind.own] == list(kinds)[:5]


@pytest.mark.parametrize(
    ("trait", "expected"),
    [
        ("takes_work_away", {"restart_jobs", "stop_jobs", "drain", "reset", "reboot", "power_cycle", "replace"}),
        (
            "isolates",
            {"cordon", "taint", "restart_jobs", "stop_jobs", "drain", "reset", "reboot", "power_cycle"}
            | {"offline", "replace", "repair", "quarantine_device"},
        ),
        ("mends", {"reset", "reboot", "power_cycle", "replace"}),
        ("ends_boot", {"reboot", "power_cycle"}),
        ("destroys_evidence", {"reset", "reboot", "power_cycle", "replace"}),
        ("proves", {"verify", "validate"}),
        ("returns_node", {"uncordon", "release"}),
        ("ends_rescue", {"uncordon", "release", "exclude", "end_exclusion"}),
        ("calls_person", {"escalate"}),
        ("gives_node_away", {"webhook", "offline"}),
        ("leaves_jobs", {"reboot"}),
        (
            "requests",
            {"offline", "power_cycle", "reboot", "replace", "reset", "run_checks", "validate", "webhook"},
        ),
    ],
)
def test_each_trait_lists_its_actions(trait: str, expected: set[str]) -> None:
    assert actions.names(lambda spec: getattr(spec, trait)) == expected


@SPECS
def test_actions_that_take_work_away_isolate(spec: actions.ActionSpec) -> None:
    assert spec.isolates or not (spec.takes_work_away or spec.takes_work_away_if)


@SPECS
def test_requests_have_a_key(spec: actions.ActionSpec) -> None:
    assert spec.request_key or not (spec.leaves_jobs or spec.gives_node_away)


@SPECS
def test_implied_steps_and_needed_actions_exist(spec: actions.ActionSpec) -> None:
    assert set(spec.implies) <= actions.ACTIONS.keys()
    if spec.policy is not None:
        named = {name for group in spec.policy.needs for name in group} | set(spec.policy.excludes)
        assert named <= actions.in_policies().keys()
        assert set(spec.policy.required) <= spec.policy.attributes.keys()


def test_only_a_taint_that_evicts_takes_work_away() -> None:
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    for name in ("taint", "quarantine_device"):
        assert [one for one in effects if actions.takes_away(name, {"effect": one})] == ["NoExecute"]
    assert actions.takes_away("drain", {"seconds": 1})
    assert not actions.takes_away("cordon", {})


def test_reasons_of_events_are_camel_case() -> None:
    assert actions.run_checks.SPEC.event_reason == "RescueRunChecks"
    assert actions.cordon.SPEC.event_reason == "RescueCordon"


# --- what a step is told and remembers


@pytest.mark.parametrize(
    ("record", "written"),
    [
        (actions.drain.Args(seconds=60), {"seconds": 60, "on_timeout": "hold"}),
        (actions.reboot.Args(), {}),
        (actions.reboot.Args(wait_seconds=5), {"wait_seconds": 5}),
        (actions.run_checks.Args(checks=("dcgm", "pciebw")), {"checks": ["dcgm", "pciebw"]}),
        (actions.verify.Args(), {"agent": True}),
        (actions.notify.Progress(requested_at=AT), {"requested_at": AT.isoformat()}),
        (
            actions.drain.Progress(entered=True, evicted=("a/b",), blocked={"a/b": ["pdb"]}),
            {"entered": True, "evicted": ["a/b"], "blocked": {"a/b": ["pdb"]}},
        ),
        (actions.reboot.Progress(boot_id="b", retry=1), {"boot_id": "b", "retry": 1}),
        (actions.run_checks.Progress(request=ASKED), {"request": ASKED.to_json()}),
        (actions.validate.Args(profile="auto"), {"profile": "auto"}),
        (actions.validate.Progress(profile="full", validation=3), {"profile": "full", "validation": 3}),
    ],
)
def test_records_as_json(record: Any, written: dict[str, Any]) -> None:
    assert record.to_json() == written
    assert type(record).from_json(written) == record


@SPECS
def test_progress_is_empty_at_first(spec: actions.ActionSpec) -> None:
    assert spec.progress().to_json() == {}
    assert not spec.progress().begun


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValueError, match=r"reboot\.Progress has no field 'boots': use retry, gated, jobs"):
        actions.reboot.Progress.from_json({"boots": 1})


def test_the_boot_that_is_to_end_is_known_from_the_beginning() -> None:
    initial = actions.reboot.Progress.initial(boot_id="b")
    assert initial.boot_id == "b"
    assert not initial.begun
    assert actions.ready.Progress.initial(boot_id="b") == actions.ready.Progress()


def test_a_retry_keeps_the_boot_and_the_jobs() -> None:
    asked = actions.reboot.Progress(boot_id="b", jobs=("ns/job",), request=ASKED, requested_at=AT, retry=1, gated=True)
    assert asked.begun
    again = asked.retried()
    assert again == actions.reboot.Progress(boot_id="b", jobs=("ns/job",), retry=2)
    assert not again.begun


@pytest.mark.parametrize(
    ("progress", "committed"),
    [
        (actions.reboot.Progress(boot_id="b", driver="agent"), False),
        (actions.reboot.Progress(request=ASKED), True),
        (actions.reset.Progress(driver="agent"), False),
        (actions.reset.Progress(request=ASKED), True),
        (actions.restart_jobs.Progress(), False),
        (actions.restart_jobs.Progress(restarted={"a/b": {}}), True),
        (actions.stop_jobs.Progress(), False),
        (actions.stop_jobs.Progress(stopped={"a/b": {}}), True),
        (actions.drain.Progress(eviction_requested=True), False),
    ],
)
def test_committed_progress_is_detected(progress: actions.Progress, committed: bool) -> None:
    assert progress.committed == committed


def test_jobs_are_left_over_until_their_deletion_is_proved() -> None:
    asked = actions.reboot.Progress(jobs=("ns/job",))
    assert asked.leftovers == (ObjectName("ns", "job"),)
    assert actions.reboot.Progress(jobs=("ns/job",), withdrawal={"done": True}).leftovers == ()


def test_the_time_of_a_drain() -> None:
    assert actions.drain.Args(seconds=60).time_limit == timedelta(minutes=1)
    assert actions.Args().time_limit is None


@SPECS
def test_every_field_that_people_see_has_a_title(spec: actions.ActionSpec) -> None:
    for record in (spec.args, spec.progress):
        for _, field in actions.fields_shown(record):
            assert field.title
            assert (field.form == actions.ValueFormat.CHOICE) == bool(field.choices)


def test_fields_of_the_base_class_come_last() -> None:
    assert [name for name, _ in actions.fields_shown(actions.reboot.Progress)] == [
        "boot_id",
        "driver",
        "request",
        "requested_at",
        "evidence",
        "retry",
    ]


def test_guards_can_name_every_action_that_takes_work_away() -> None:
    """A guard that holds one says which: without the sentence the step would fail instead of waiting."""
    names = [name for name, spec in actions.ACTIONS.items() if spec.takes_work_away]
    assert [name for name in names if f"act_{name}" not in sentences.SENTENCES] == []
