"""Log lines: as JSON, with the ids of the work they belong to, and without secrets."""

import io
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from kcover import audit
from kcover.decisions import guards
from kcover_portal.celery import app
from kcover_portal.config import log_context, log_format
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.operate import watcher
from kcover_portal.policies import tasks as policies
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.decide import decisions, shared_jobs
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import pull_schedule
from tests import moment
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import CORDON, NODE, World

ROOT = Path(__file__).parents[3]
log = logging.getLogger("kcover_portal.test")


@dataclass
class Named:
    name: str


@contextmanager
def written_by(logger: str) -> Iterator[Any]:
    """The lines of this logger, as objects."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_format.JsonLine())
    watched = logging.getLogger(logger)
    watched.addHandler(handler)
    before, watched.propagate = watched.propagate, False
    try:
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    finally:
        watched.removeHandler(handler)
        watched.propagate = before


@pytest.fixture
def lines() -> Iterator[Any]:
    """The lines that the test logs, as objects."""
    with written_by(log.name) as written:
        yield written


@pytest.fixture
def acts() -> Iterator[Any]:
    """The lines of the audit log."""
    with written_by("kcover_portal.ledger.services") as written:
        yield written


def test_a_line_is_one_object(lines: Any) -> None:
    log.warning("two\nlines and %s", '"quotes"')
    (line,) = lines()
    assert (line["level"], line["logger"]) == ("WARNING", "kcover_portal.test")
    assert line["message"] == 'two\nlines and "quotes"'
    assert line["time"].endswith("+00:00")
    assert line["process"] == os.getpid()


@pytest.mark.parametrize("bad", ["\x9b2J", "\x85", "\u2028", "\u202e", "\u2066", "\x7f"], ids=ascii)
@pytest.mark.parametrize("formatter", [log_format.JsonLine(), log_format.Redacted(log_format.LINE)])
def test_no_text_commands_a_terminal(formatter: logging.Formatter, bad: str) -> None:
    """Also not the C1 controls and those of direction, which JSON leaves as they are."""
    record = logging.LogRecord("kcover_portal.x", logging.INFO, "", 0, "cluster %s", (f"a{bad}b",), None)
    line = formatter.format(record)
    assert bad[0] not in line
    if isinstance(formatter, log_format.JsonLine):
        assert json.loads(line)["message"] == f"cluster a{bad}b"


def test_quoted_text_is_no_line_of_its_own() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_format.Redacted(log_format.LINE))
    log.addHandler(handler)
    forged = "x\r\n2026-11-21 08:00:00,000 INFO user.signed_in: user admin\x1b[2J\u2028\u0085"
    try:
        log.warning("refused: %s", forged)
        try:
            raise ValueError(forged)
        except ValueError:
            log.exception("failed")
    finally:
        log.removeHandler(handler)
    refused, failed, *traceback = stream.getvalue().splitlines()
    assert refused.endswith(r"refused: x\r\n2026-11-21 08:00:00,000 INFO user.signed_in: user admin\x1b[2J\u2028\x85")
    assert failed.endswith("ERROR kcover_portal.test failed")
    assert [line for line in traceback if not line.startswith("  ")] == []


def test_ids_are_those_of_the_work(lines: Any) -> None:
    with log_context.bound(rescue=7, message="not this"):
        with log_context.bound(node="gpu-1"):
            log.error("inside")
        log.error("after")
    log.error("outside")
    inside, after, outside = lines()
    assert (inside["rescue"], inside["node"], inside["message"]) == (7, "gpu-1", "inside")
    assert ("node" in after, after["rescue"]) == (False, 7)
    assert "rescue" not in outside


def test_an_error_keeps_the_ids_of_the_work_that_it_ended(lines: Any) -> None:
    try:
        with log_context.bound(task="rescue.run"), log_context.bound(rescue=7):
            raise ValueError("no")
    except ValueError:
        log.exception("failed")
    (line,) = lines()
    assert (line["task"], line["rescue"]) == ("rescue.run", 7)
    assert line["exception"].endswith("ValueError: no")


@pytest.mark.parametrize("place", ["message", "exception"])
def test_the_token_of_an_approval_link_is_hidden(lines: Any, place: str) -> None:
    try:
        raise ValueError('GET "https://x/approve/#secret\\" failed' if place == "exception" else "no")
    except ValueError:
        log.exception("https://x/approve/secret")
    (line,) = lines()
    assert "secret" not in json.dumps(line)


class Broken(FakeCluster):
    """An error that nobody expects."""

    def evict(self, *_arguments: Any, **_more: Any) -> Any:
        raise ValueError("no")


@pytest.mark.django_db
def test_an_error_in_a_step_names_rescue_node_and_cluster(lines: Any) -> None:
    world = World(fake=Broken)
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.fault(62)
    try:
        world.work()
    except ValueError:
        log.exception("task failed")
    (line,) = lines()
    assert (line["rescue"], line["node"], line["cluster"]) == (world.rescue().pk, NODE, world.cluster.name)


@pytest.mark.django_db
def test_each_act_on_a_node_is_one_line_with_its_rescue(acts: Any, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        world = World()
        world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
        world.fault(62)
        world.until_reboot_is_asked()
    written = [line for line in acts() if line.get("rescue") == world.rescue().pk]
    verbs = [line["message"].partition(":")[0] for line in written]
    assert {"rescue.opened", "cordon.done", "evict.done", "reboot.done"} <= set(verbs)
    assert not [verb for verb in verbs if verb.endswith(".begun")]
    assert verbs.count("cordon.done") == verbs.count("evict.done") == 1
    for line in written:
        assert (line["level"], line["node"], line["cluster"]) == ("INFO", NODE, world.cluster.name)
        assert f"{world.cluster.name}/{NODE}, rescue {line['rescue']}" in line["message"]


def decided(answer: audit.DecisionAnswer) -> audit.Act:
    return audit.DecisionMade(
        incident=1, node=NODE, decision=1, answer=answer, mode="enforce", revision=None, because=(), facts=""
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("act", "told"),
    [
        (decided(audit.DecisionAnswer.RESCUE), True),
        (decided(audit.DecisionAnswer.HOLD), True),
        (decided(audit.DecisionAnswer.NONE), False),
        (audit.TokenCreated(token="abc", kind="agent", node=NODE), False),
        (audit.TokenRevoked(token="abc", kind="agent", node=NODE), True),
        (audit.ClusterCallBegun(call=audit.Call.CORDON, target="node gpu-1", node=NODE), False),
        (audit.ClusterCallDone(call=audit.Call.CORDON, target="node gpu-1", node=NODE), True),
    ],
    ids=lambda value: value.verb if isinstance(value, audit.Act) else str(value),
)
def test_the_log_has_no_line_about_what_changes_nothing(
    act: audit.Act, told: bool, acts: Any, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        ledger.record("c1", act, actor="system", now=moment.START)
    assert [line["message"].partition(":")[0] for line in acts()] == [act.verb] * told


@pytest.mark.django_db
def test_a_task_that_cannot_read_a_cluster_names_it() -> None:
    world = World()
    world.kube.fail("custom_objects", port.Unavailable("down"), times=-1)
    with written_by("kcover_portal.policies.tasks") as lines:
        policies.read_objects_of(world.cluster.pk)
    (line,) = lines()
    assert line["cluster"] == world.cluster.name


@pytest.mark.django_db
def test_a_source_that_cannot_be_read_is_a_line_with_its_cluster() -> None:
    world = World()
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"  # nobody listens there in a moment
    source = Source.objects.create(
        cluster=world.cluster, name="metrics", kind="prometheus", url=url, created_at=world.now
    )
    with written_by("kcover_portal.sources.services.pull_schedule") as lines:
        pull_schedule.pull(source.pk, clock=world.clock)
    (line,) = lines()
    assert line["cluster"] == world.cluster.name


@pytest.mark.django_db
def test_a_node_that_cannot_be_reconciled_is_a_line_with_its_name_and_cluster() -> None:
    world = World(policy=CORDON)
    world.fault(62)
    world.work()
    world.kube.objects.edit("Node", "", NODE, lambda node: node["metadata"].update(annotations={}))
    world.sync()
    world.kube.fail("get_node", port.Unavailable("down"))
    with written_by("kcover_portal.rescue.engine.reconcile") as lines:
        rescue.reconcile(now=world.now)
    assert [(line["cluster"], line["node"]) for line in lines()] == [(world.cluster.name, NODE)]


@pytest.mark.django_db
def test_decisions_that_fail_are_lines_with_their_cluster() -> None:
    world = World(nodes=2)
    for node in ("gpu-1", "gpu-2"):
        world.fault(62, node=node)
    Cluster.objects.update(guards={"breaker": 7})  # as no version writes it
    due = list(Incident.objects.order_by("pk").values_list("pk", flat=True))
    with written_by("kcover_portal.rescue.decide.decisions") as lines, pytest.raises(guards.SettingError):
        decisions.decide_and_run(due, clock=world.clock)
    assert [(line["cluster"], line.get("incident"), line.get("node")) for line in lines()] == [
        (world.cluster.name, None, None),
        (world.cluster.name, due[0], "gpu-1"),
        (world.cluster.name, due[1], "gpu-2"),
    ]


@pytest.mark.django_db
def test_jobs_that_cannot_be_looked_up_are_a_line_with_the_cluster() -> None:
    world = World(nodes=2)
    for node in ("gpu-1", "gpu-2"):
        world.fault(62, node=node)
    world.kube.fail("list_pods", port.Unavailable("down"))
    with written_by("kcover_portal.rescue.decide.shared_jobs") as lines:
        shared_jobs.refresh(list(Incident.objects.all()), now=world.now)
    assert [line["cluster"] for line in lines()] == [world.cluster.name]


def test_the_thread_of_a_follower_names_its_cluster() -> None:
    seen = []

    class Follower:
        def run(self) -> None:
            seen.append(dict(log_context.current()))

    thread = threading.Thread(target=watcher._run, args=(Follower(), "east"))
    thread.start()
    thread.join()
    assert seen == [{"cluster": "east"}]


def test_a_task_names_its_lines_and_forgets_those_before() -> None:
    seen = []

    @app.task(name="test.logs")
    def look() -> None:
        seen.append(dict(log_context.current()))

    try:
        with log_context.bound(rescue=7):
            look.apply(task_id="one")
        assert seen == [{"task": "test.logs", "task_id": "one"}]
    finally:
        del app.tasks["test.logs"]


@pytest.mark.parametrize(
    ("sent", "kept"), [("a1-b:2", True), ("x y", False), ("ü", False), ("", False), ("a" * 129, False)]
)
def test_a_request_has_an_id(sent: str, kept: bool) -> None:
    first, second = (Client().get("/healthz", headers={"X-Request-ID": sent}).headers["X-Request-ID"] for _ in "12")
    assert (first == second == sent) == kept
    assert (first == second) == kept
    assert len(first) == (len(sent) if kept else 32)


def test_a_process_writes_json_and_its_web_server_too(tmp_path: Path) -> None:
    code = (
        "import logging.config, uvicorn; uvicorn.Config('x:y');"
        "import django; django.setup();"
        "logging.getLogger('uvicorn.error').error('one'); logging.getLogger('celery').warning('two')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "kcover_portal.settings",
            "KCOVER_DATABASE_URL": f"sqlite:///{tmp_path}/k.sqlite3",
            "KCOVER_SECRET_KEY": "only-for-tests-8bdfc9d2a4e64fd6a1f8",
            "KCOVER_LOG_FORMAT": "json",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line)["message"] for line in ended.stderr.splitlines()] == ["one", "two"]


def test_a_worker_at_level_warning_shows_what_was_done(tmp_path: Path) -> None:
    code = (
        "import django, logging; django.setup(); from kcover_portal.celery import app;"
        "app.log.setup(loglevel='WARNING', redirect_stdouts=False);"
        "logging.getLogger('kcover_portal.ledger.services').info('done'); logging.getLogger('celery.x').info('no')"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "kcover_portal.settings"}
    environment |= {"KCOVER_DATABASE_URL": f"sqlite:///{tmp_path}/k.sqlite3", "KCOVER_LOG_FORMAT": "json"}
    environment |= {"KCOVER_SECRET_KEY": "only-for-tests-8bdfc9d2a4e64fd6a1f8"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert [json.loads(line)["message"] for line in ended.stderr.splitlines()] == ["done"]
