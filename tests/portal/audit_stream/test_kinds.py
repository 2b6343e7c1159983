"""Sinks that other systems read: CloudEvents, Loki and S3 buckets; and the topic of healing records."""

import base64
import io
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from minio import Minio
from moto.server import ThreadedMotoServer

from kcover import audit
from kcover.plans import kce_actions
from kcover.sources import cloudevents
from kcover_portal.audit_stream import queries, services
from kcover_portal.audit_stream.models import Sink
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import RESCUE_ENDS, Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.operate.management.commands import audit_stream as command
from kcover_portal.rescue import services as rescues
from tests.portal.audit_stream.conftest import SECRET, tell
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
KEY = "A" * 16 + ":" + "b" * 32


def made(kind: str, address: str, *, now: datetime, **given: Any) -> Sink:
    return services.SINKS.make(Sink(name=kind, kind=kind), {"address": address, **given}, actor="user:ada", now=now)


def deliver(sink: Sink, now: datetime) -> int:
    return services.deliver(sink.pk, clock=lambda: now)


def refused(kind: str, address: str, *, now: datetime, **given: Any) -> tuple[str, str]:
    with pytest.raises(FieldError) as raised:
        made(kind, address, now=now, **given)
    return raised.value.field, raised.value.reason.code


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    Minio(f"{host}:{port}", *KEY.split(":"), secure=False, region="us-east-1").make_bucket("records")
    yield f"{host}:{port}"
    running.stop()


def test_cloud_events_come_in_signed_batches(web: Receiver, now: datetime, settings) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    sink = made("cloudevents", web.url, secret=SECRET, now=now)
    tell("c1", "one", "two", now=now)
    assert deliver(sink, now) == 3
    [headers] = web.headers
    found = [
        cloudevents.event_of(envelope, now=now)
        for _, envelope in cloudevents.envelopes(web.asked[0], content_type=headers["Content-Type"], headers=headers)
    ]
    assert [(event.type, event.source, event.id) for event in found if event.source.endswith("/c1")] == [
        ("io.kcover.audit.password.changed", "https://portal.example/clusters/c1", f"audit/c1/{n}") for n in (1, 2)
    ]
    assert [event.time for event in found] == [now] * 3
    assert web.signed == [True]


def test_loki_gets_a_stream_for_each_topic_and_cluster(web: Receiver, now: datetime) -> None:
    base = web.url.removesuffix("/hook/hush")
    sink = made("loki", f"{base}/", secret="glc_1", options={"tenant": "ops", "user": ""}, now=now)
    tell("c1", "one", now=now)
    late = now + timedelta(days=30)  # Loki refuses lines older than a week
    assert deliver(sink, late) == 2
    assert (web.paths, web.headers[0]["X-Scope-OrgID"]) == (["/loki/api/v1/push"], "ops")
    assert web.headers[0]["Authorization"] == "Bearer glc_1"
    streams = {stream["stream"]["cluster"]: stream for stream in web.asked[0]["streams"]}
    assert streams["c1"]["stream"] == {"job": "kcover-portal", "topic": "audit", "cluster": "c1"}
    [(nanoseconds, line)] = streams["c1"]["values"]
    assert int(nanoseconds) == int((late - timedelta(days=6)).timestamp()) * 10**9
    assert datetime.fromisoformat(json.loads(line)["at"]) == now
    services.SINKS.change(sink, {"options": {"user": "7"}}, actor="user:ada", reason="", now=late)
    assert deliver(sink, late) == 1
    assert web.headers[1]["Authorization"] == "Basic " + base64.b64encode(b"7:glc_1").decode()
    assert "X-Scope-OrgID" not in web.headers[1]


def test_a_bucket_gets_an_object_of_lines_for_each_batch_once(store: str, now: datetime, settings) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    client = Minio(store, *KEY.split(":"), secure=False, region="us-east-1")
    sink = made("s3", f"http://{store}/records/prod/east", secret=KEY, now=now)
    tell("c1", "one", "two", now=now)
    assert deliver(sink, now) == 3
    sink.positions.all().delete()  # as if the worker had died after the answer
    assert deliver(sink, now) == 3
    [found] = client.list_objects("records", prefix="prod/east/", recursive=True)
    assert str(found.object_name).startswith(f"prod/east/{now:%Y/%m/%d/%H%M%S}-")
    lines = client.get_object("records", str(found.object_name)).read().decode().splitlines()
    assert {json.loads(line)["subject"] for line in lines} == {"user one", "user two", "audit sink s3"}
    tell("c1", "three", now=now)
    services.SINKS.change(sink, {"address": f"http://{store}/nowhere"}, actor="user:ada", reason="", now=now)
    assert deliver(sink, now) == 0
    sink.refresh_from_db()
    assert (sink.why and sink.why.code) == "sink_refused"


def test_the_settings_of_each_kind_are_checked(now: datetime) -> None:
    url = "https://x.example/b"
    assert refused("cloudevents", url, now=now, secret="short") == ("secret", "secret_length")
    for kind in ("webhook", "loki", "jira", "s3"):
        assert refused(kind, url, now=now, secret="s" * 1001) == ("secret", "text_too_long")
    assert refused("mail", "a@x.example", now=now, incoming_secret="s" * 1001) == ("incoming_secret", "text_too_long")
    for kind, address in (("webhook", url), ("syslog", "udp://x:514"), ("mail", "a@x.example")):
        assert refused(kind, address.replace("x", "x" * 1000), now=now) == ("address", "text_too_long")
    assert refused("loki", f"{url}?a=1", now=now) == ("address", "url_with_query")
    assert refused("loki", url, now=now, options={"user": "7"}) == ("secret", "secret_missing_for_user")
    assert refused("loki", url, now=now, options={"region": "x"}) == ("options", "option_unknown")
    assert refused("loki", url, now=now, options={"tenant": "a\nb"}) == ("options", "option_invalid")
    assert refused("s3", "https://x.example/", now=now, secret=KEY) == ("address", "sink_bucket_invalid")
    assert refused("s3", url, now=now, secret="no-colon") == ("secret", "sink_bucket_key_invalid")
    assert refused("syslog", "udp://x:514", now=now, options={"tenant": "x"}) == ("options", "option_unknown")


@pytest.mark.parametrize("kind", ["webhook", "cloudevents", "loki", "s3"])
def test_a_secret_is_not_sent_to_another_server(kind: str, now: datetime) -> None:
    sink = made(kind, "https://one.example/b", secret=KEY, now=now)
    with pytest.raises(FieldError) as raised:
        services.SINKS.change(sink, {"address": "https://two.example/b"}, actor="user:ada", reason="", now=now)
    assert (raised.value.field, raised.value.reason.code) == ("secret", "secret_again")
    services.SINKS.change(sink, {"address": "https://one.example/c"}, actor="user:ada", reason="", now=now)
    given = {"address": "https://two.example/b", "secret": KEY}
    assert services.SINKS.change(sink, given, actor="user:ada", reason="", now=now).address == given["address"]


def test_the_command_adds_a_sink_of_healing_records(now: datetime, monkeypatch) -> None:
    monkeypatch.setattr(command.sys, "stdin", io.StringIO(f"{KEY}\n"))
    arguments = ("--kind", "s3", "--address", "https://s3.example/records", "--topic", "healing", "--set", "region=eu")
    call_command("audit_stream", "add", "lake", *arguments)
    sink = Sink.objects.get(name="lake")
    assert (sink.topics, sink.options, sink.secret) == (["healing"], {"region": "eu"}, KEY)


@pytest.fixture
def world(db: None) -> Iterator[World]:
    found = World(policy="")
    Cluster.objects.update(decision_mode="both")
    yield found
    found.uninstall()


def cordoned(world: World) -> None:
    body = {"nodeName": NODE, "xid": 62, "actions": [{"name": "cordon"}]}
    plan = kce_actions.parse(body, now=world.now)
    rescues.request_plan(world.node(), plan, actor="token:decision x", payload={}, now=world.now)
    world.work()


def test_each_rescue_that_ended_is_one_healing_record(world: World, web: Receiver) -> None:
    assert set(RESCUE_ENDS) == set(audit.RescueEnded.verbs())
    sink = made("cloudevents", web.url, secret=SECRET, topics=["healing"], now=world.now)
    tell("c1", "noise", now=world.now)
    assert deliver(sink, world.now) == 0
    cordoned(world)
    end = Entry.objects.get(verb="rescue.succeeded")
    assert queries.lag(sink, now=world.now).records == 1
    assert deliver(sink, world.now) == 1
    [event] = web.asked[0]
    record = event["data"]
    assert (event["type"], event["subject"], event["id"]) == (
        "io.kcover.healing.succeeded",
        NODE,
        f"healing/{end.cluster}/{end.sequence}",
    )
    assert (record["state"], record["requested_by"], record["digest"]) == ("succeeded", "token:decision x", end.digest)
    assert [(step["name"], step["state"]) for step in record["steps"]] == [("cordon", "done")]
    assert (record["cluster_calls"] > 0, record["votes"], record["seconds"] >= 0) == (True, [], True)
    tell("c1", "more noise", now=world.now)
    assert (deliver(sink, world.now), queries.lag(sink, now=world.now).records) == (0, 0)
