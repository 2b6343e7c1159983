"""The details of a step on the page of a rescue: the titles are those of the step's action."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import translation

from kcover import actions, reasons
from kcover_portal.console import presentation
from kcover_portal.console.reads import step_facts
from kcover_portal.rescue.models import Step

AT = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def facts(name: str, args: actions.Args | None = None, progress: actions.Progress | None = None) -> dict[str, object]:
    step = Step(name=name, args=args.to_json() if args else {}, progress=progress.to_json() if progress else {})
    return dict(step_facts.of(step))


def test_a_label_is_no_taint() -> None:
    assert facts("label", actions.label.Args(key="team", value="gpu")) == {"Label key": "team", "Label value": "gpu"}
    assert facts("taint", actions.taint.Args(value="62")) == {
        "Taint key": "kcover.io/unhealthy",
        "Taint value": "62",
        "Taint effect": "NoSchedule",
    }


def test_a_webhook_waits_for_a_callback_and_for_no_reboot() -> None:
    reported = actions.webhook.Args(url="https://repair.example/hook", wait_seconds=3600)
    given = actions.webhook.Progress(tries=1, given_at=AT, callback={"outcome": "done", "message": "", "at": ""})
    assert facts("webhook", reported, given) == {
        "Address": "https://repair.example/hook",
        "Waits for a callback for": "1 h",
        "Calls made": 1,
        "Handed over at": AT,
    }
    assert facts("reboot", actions.reboot.Args(wait_seconds=3600)) == {"Wait before the reboot": "1 h"}


def test_a_validation_is_a_link() -> None:
    because = reasons.of("validation_class_memory")
    chosen = actions.validate.Progress(profile="full", because=because, validation=7, boot_id="b")
    assert facts("validate", actions.validate.Args(profile="auto"), chosen) == {
        "Validation profile": "auto",
        "Chosen profile": "full",
        "Chosen because": str(because),
        "Validation number": '<a href="/checks/validations/7/">7</a>',
    }
    assert facts("validate", actions.validate.Args(profile="light")) == {"Validation profile": "light"}


def test_progress_of_the_engine_alone_is_not_shown() -> None:
    progress = actions.drain.Progress(
        entered=True,
        eviction_requested=True,
        evicted=("a/b", "a/a"),
        blocked={"a/c": ["budget"], "a/d": []},
        refusals=2,
    )
    assert facts("drain", actions.drain.Args(seconds=60), progress) == {
        "Time limit": "1 min",
        "On timeout": "hold and escalate to an operator",
        "Pods evicted": "2: a/a, a/b",
        "Blocked by a disruption budget": "a/c ← budget; a/d ← a disruption budget",
        "Eviction retries": 2,
    }


def test_long_lists_of_names_are_cut() -> None:
    left = tuple(f"a/{number}" for number in range(8))
    assert facts("drain", actions.drain.Args(seconds=60), actions.drain.Progress(left=left))["Pods left"] == (
        "8: a/0, a/1, a/2, a/3, a/4, a/5 and 2 more"
    )


@pytest.mark.parametrize(("driver", "words"), [("agent", "the node's agent"), ("job", "a job on the node")])
def test_ways_to_reboot(driver: str, words: str) -> None:
    assert facts("reboot", None, actions.reboot.Progress(driver=driver, retry=1)) == {"Reboot via": words, "Retries": 1}


def test_the_gpu_that_is_reset() -> None:
    assert facts("reset", None, actions.reset.Progress(gpu={"gpu_uuid": "GPU-1"}))["GPU"] == "GPU-1"


def test_a_running_step_shows_its_deadline() -> None:
    args = actions.drain.Args(seconds=60).to_json()
    step = Step(name="drain", args=args, started_at=AT, state="running")
    assert step_facts.of(step)[0] == ("Times out", AT + timedelta(minutes=1))
    assert step_facts.deadline(Step(name="drain", args=args, started_at=AT, state="done")) is None
    assert step_facts.deadline(Step(name="cordon", started_at=AT, state="running")) is None


def test_step_facts_are_shown_in_chinese() -> None:
    with translation.override("zh-hans"):
        assert facts("taint", actions.taint.Args(value="62"))["污点键"] == "kcover.io/unhealthy"
        assert presentation.step_title("drain") == "排空"


def test_a_step_of_an_unknown_action_has_its_name() -> None:
    assert presentation.step_title("tow") == "tow"
    assert facts("tow") == {}
