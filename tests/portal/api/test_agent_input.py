"""Bad input at the agents' endpoint: it is refused with a reason that names the valid input, and stored not even
partly.
"""

import asyncio
import gzip
import json
import uuid
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.agent import app, body as bodies
from kcover_portal.api.agent.report_rates import BURST_REPORTS
from kcover_portal.fleet.models import Agent, CheckResult, Cluster, Gpu, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Batch, Incident, Occurrence
from tests.portal.api.conftest import Api, add_node
from tests.portal.api.door import CHUNK, Answer, Door, check, each, encoded, fault, loop, moment, packed, report

pytestmark = pytest.mark.django_db(transaction=True)

LIMIT = 1024 * 1024
KEPT = (Node, Agent, Gpu, CheckResult, Batch, Incident, Occurrence)


@pytest.fixture
def cluster(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture(autouse=True)
def _nobody_remembered() -> None:
    """Forgets the tokens of the test before: their rows are gone."""
    app.known_credentials.forget()


def token(kind: str = "agent", *, cluster: Cluster | None = None, node: str = "", **more: Any) -> str:
    """The secret of a token that is in force."""
    return accounts.make_token(kind, cluster=cluster, node=node, created_by="test", now=datetime.now(UTC), **more)[1]


@pytest.fixture
def door(cluster: Cluster) -> Door:
    return Door(token(cluster=cluster, node="gpu-1"))


def stored() -> dict[str, int]:
    return {model.__name__: count for model in KEPT if (count := model.objects.count())}


# --- the body as a whole


async def unfinished(secret: str, *, size: int = LIMIT) -> int:
    """The status that a request gets of whose body nothing comes."""
    sent: list[Any] = []
    named = {"authorization": f"Bearer {secret}", "content-length": str(size)}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/agent/reports",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }

    async def send(message: Any) -> None:
        sent.append(message)

    await app.application(scope, asyncio.Event().wait, send)
    return sent[0]["status"]


def test_unfinished_bodies_do_not_block_another_agent(cluster: Cluster, door: Door) -> None:
    assert door.report(report()).status == 202

    async def crowd() -> Answer:
        slow = [asyncio.create_task(unfinished(str(door.secret))) for _ in range(BURST_REPORTS - 4)]
        await asyncio.sleep(0)  # all of them are being read
        answer = await door.ask("POST", "reports", encoded(report()))
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return answer

    assert loop.run(crowd()).status == 202


def test_a_body_is_not_waited_for_for_ever(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "RECEIVE_TIMEOUT_SECONDS", 0.01)
    assert loop.run(unfinished(str(door.secret))) == 408


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def duplicated(key: str) -> bytes:
    return encoded(report()).replace(b'"version": 1', f'"version": 1, "{key}": "gpu-1"'.encode(), 1)


@each(
    "body, reasons",
    [
        (b"", ["body: The body is empty. Send a report as JSON"]),
        (b" \n", ["body: The body is empty"]),
        (b"{", ["body: is not JSON in UTF-8", "line 1 column 2"]),
        (b'{"version": 1,}', ["body: is not JSON in UTF-8", "line 1 column 15"]),
        (b"\xff\xfe{}", ["body: is not JSON in UTF-8", "position 0"]),
        ("{}".encode("utf-16"), ["body: is not JSON in UTF-8"]),
        (b"[]", ["body: must be an object, not a list"]),
        (b'"report"', ['body: must be an object, not "report"']),
        (b"null", ["body: must be an object, not null"]),
        (deep(100_000), ["body: is nested too deeply"]),
        (duplicated("node"), ['body: has the key "node" twice', "write it once"]),
        (encoded(report()).replace(b"[]", b"NaN", 1), ["body: contains NaN", "write null or leave the key out"]),
        (encoded(report()).replace(b"[]", b"-Infinity", 1), ["body: contains -Infinity"]),
        (encoded(report()).replace(b'"version": 1', b'"version": ' + b"9" * 5000, 1), ["body: is not JSON"]),
    ],
)
def test_a_body_that_is_no_report(body: bytes, reasons: list[str], door: Door) -> None:
    answer = door.report(body)
    detail = answer.problem(400)
    assert answer.body["title"] == "The report cannot be read"
    for reason in reasons:
        assert reason in detail
    assert stored() == {}


@each(
    "changes, field, reason",
    [
        ({"version": 2}, "version", "2 is not supported: write 1"),
        ({"version": True}, "version", "true is not supported: write 1"),
        ({"version": "1"}, "version", '"1" is not supported: write 1'),
        ({"version": None}, "version", "is missing"),
        ({"node": None}, "node", "is missing"),
        ({"node": "GPU 1"}, "node", "must be a Kubernetes node name"),
        ({"node": "x" * 254}, "node", "at most 253"),
        ({"node": 5}, "node", "not 5"),
        ({"boot_id": None}, "boot_id", "is missing"),
        ({"boot_id": "x" * 65}, "boot_id", "1 to 64 printable ASCII characters"),
        ({"boot_id": ["b"]}, "boot_id", "not a list"),
        ({"batch_id": "7"}, "batch_id", "must be a UUID such as"),
        ({"batch_id": 10**40}, "batch_id", "must be a UUID such as"),
        ({"sent_at": None}, "sent_at", "is missing"),
        ({"sent_at": "yesterday"}, "sent_at", 'must be a time such as "2026-11-21T08:00:00Z"'),
        ({"sent_at": "2026-11-21T08:00:00"}, "sent_at", "must be a time such as"),
        ({"sent_at": "2026-13-40T08:00:00Z"}, "sent_at", "is not a valid time"),
        ({"sent_at": "9999-12-31T23:59:59Z"}, "sent_at", "must be from 0001-01-02 to 9999-12-30"),
        ({"sent_at": "0001-01-01T00:00:00Z"}, "sent_at", "must be from 0001-01-02 to 9999-12-30"),
        ({"sent_at": 1_800_000_000}, "sent_at", "must be a time such as"),
    ],
)
def test_a_wrong_envelope_is_named_field_by_field(changes: dict[str, Any], field: str, reason: str, door: Door) -> None:
    answer = door.report(report(fault(), **changes))
    assert answer.problem(400).startswith(f"{field}: ")
    [error] = answer.body["errors"]
    assert error["field"] == field
    assert reason in error["reason"]
    assert stored() == {}


# --- too large, packed wrongly


def test_two_mebibytes_are_too_large(door: Door) -> None:
    large = encoded(report(agent="x" * (2 * LIMIT)))
    detail = door.report(large).problem(413)
    assert detail == (
        f"body: The body has {len(large)} bytes; the limit is {LIMIT} (unpacked). Send fewer items at once."
    )
    unannounced = door.report(large, Content_Length="")
    assert f"has more than {LIMIT} bytes" in unannounced.problem(413)
    assert stored() == {}


def test_the_limit_itself_is_taken(door: Door) -> None:
    padding = LIMIT - len(encoded(report(x="")))
    assert door.report(report(x="y" * padding)).status == 202
    assert f"has {LIMIT + 1} bytes" in door.report(report(x="y" * (padding + 1))).problem(413)


def test_a_compression_bomb_is_not_unpacked(door: Door) -> None:
    bomb = gzip.compress(b" " * (64 * LIMIT))
    assert len(bomb) < LIMIT // 8
    assert f"has more than {LIMIT} bytes once unpacked" in door.report(bomb, Content_Encoding="gzip").problem(413)
    just = encoded(report(x="y" * LIMIT))
    assert "once unpacked" in door.report(gzip.compress(just), Content_Encoding="gzip").problem(413)
    assert stored() == {}


@each(
    "body, encoding, status, reason",
    [
        (packed(report())[:-1], "gzip", 400, "The gzip data is truncated."),
        (packed(report())[:20], "gzip", 400, "The gzip data is truncated."),
        (b"", "gzip", 400, "The gzip data is truncated."),
        (encoded(report()), "gzip", 400, "is not gzip although Content-Encoding is gzip"),
        (zlib.compress(encoded(report())), "gzip", 400, "is not gzip although Content-Encoding is gzip"),
        (packed(report()) + b"tail", "gzip", 400, "4 bytes follow the gzip data"),
        (packed(report()) + packed(report()), "gzip", 400, "send one gzip member"),
        (gzip.compress(b""), "gzip", 400, "is empty"),
        (packed(report())[:-8] + bytes(8), "gzip", 400, "is not gzip although Content-Encoding is gzip"),
        (packed(report()), "", 400, "is not JSON in UTF-8"),
        (zlib.compress(encoded(report())), "deflate", 415, "Content-Encoding: deflate is not supported; send gzip"),
        (encoded(report()), "br", 415, "br is not supported"),
        (packed(packed(report())), "gzip, gzip", 415, "gzip, gzip is not supported"),
    ],
)
def test_an_invalid_compression_is_refused(body: bytes, encoding: str, status: int, reason: str, door: Door) -> None:
    assert reason in door.report(body, Content_Encoding=encoding).problem(status)
    assert stored() == {}


@each("encoding", ["gzip", "GZIP", "x-gzip", " gzip "])
def test_a_packed_report_is_taken(encoding: str, door: Door) -> None:
    assert door.report(packed(report(fault())), Content_Encoding=encoding).body["accepted"] == 1


def test_a_cut_connection_stores_no_report(door: Door) -> None:
    whole = encoded(report(*[fault(message="x" * 4096)] * 40))
    assert len(whole) > 2 * CHUNK

    async def cut() -> list[Any]:
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": whole[:CHUNK], "more_body": True}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {door.secret}".encode())]
        scope = {"type": "http", "method": "POST", "path": "/api/v1/agent/reports", "headers": headers}
        await app.application(scope, receive, send)
        return sent

    assert loop.run(cut())[0]["status"] == 400
    assert stored() == {}


# --- items of a good envelope


BAD_FAULTS = [
    ({"kind": "gremlin"}, "kind", "must be one of xid, sxid, check"),
    ({"kind": None}, "kind", "is missing"),
    ({"code": None}, "code", "is missing"),
    ({"code": "79"}, "code", "write 79 without quotes"),
    ({"code": 79.0}, "code", "must be a whole number"),
    ({"code": True}, "code", "must be a whole number"),
    ({"code": 2**31}, "code", "must be from 0 to 2147483647"),
    ({"code": -1}, "code", "must be from 0"),
    ({"code": 10**4000}, "code", "must be from 0 to 2147483647"),
    ({"kind": "check", "code": "Über"}, "code", "1 to 64 of a-z"),
    ({"kind": "check", "code": "x" * 65}, "code", "1 to 64 of a-z"),
    ({"pci": "PCI:0000:4e:00"}, "pci", 'without "PCI:"'),
    ({"pci": 7}, "pci", "must be a PCI address"),
    ({"gpu_uuid": "x" * 97}, "gpu_uuid", "must be a GPU's UUID"),
    ({"gpu_uuid": "GPU 1"}, "gpu_uuid", "must be a GPU's UUID"),
    ({"message": "x" * 4097}, "message", "has 4097 characters, at most 4096 are allowed: shorten it"),
    ({"message": "a\0b"}, "message", "contains a NUL"),
    ({"message": "\ud800"}, "message", "unpaired surrogate"),
    ({"message": {"text": "x"}}, "message", "must be a string, not an object"),
    ({"seen_at": "2026-11-21T08:00:00"}, "seen_at", "must be a time such as"),
    ({"seen_at": "2026-02-30T08:00:00Z"}, "seen_at", "is not a valid time"),
    ({"seen_at": "9999-12-31T23:59:59Z"}, "seen_at", "must be from 0001-01-02 to 9999-12-30"),
    ({"source": "x" * 33}, "source", 'a short word such as "kmsg" (at most 32)'),
    ({"source": "a b"}, "source", 'a short word such as "kmsg" (at most 32)'),
    ({"sequence": 2**63}, "sequence", "must be from 0 to 9223372036854775807"),
    ({"sequence": "5"}, "sequence", "write 5 without quotes"),
    ({"records": [[5, 4]]}, "records", "pairs of a first and a last number, from 0 to 9223372036854775807"),
    ({"drill": "yes"}, "drill", "must be true or false"),
    ({"drill": 1}, "drill", "must be true or false"),
    ({"count": 0}, "count", "must be from 1 to 1000000"),
    ({"count": 1_000_001}, "count", "must be from 1 to 1000000"),
]


def test_bad_faults_are_rejected_and_the_good_ones_are_kept(door: Door) -> None:
    bad = [{key: value for key, value in fault(**changes).items() if value is not None} for changes, _, _ in BAD_FAULTS]
    bad += [5, "xid", None, [], True]
    answer = door.report(report(fault(code=62), *bad, fault(code=95)))
    assert (answer.status, answer.body["accepted"], answer.body["duplicates"]) == (202, 2, 0)
    reasons = [(f"/{field}", reason) for _, field, reason in BAD_FAULTS] + [("", "must be an object, not ")] * 5
    for index, (rejected, (path, reason)) in enumerate(zip(answer.body["rejected"], reasons, strict=True), start=1):
        assert rejected["path"] == f"faults/{index}{path}"
        assert reason in rejected["reason"], rejected
    assert sorted(Incident.objects.values_list("code", flat=True)) == ["62", "95"]
    assert Occurrence.objects.count() == 2


@each(
    "changes, path, reason",
    [
        ({"checks": [check(status="fine")]}, "checks/0/status", "must be one of pass, warn, fail, error, skipped"),
        ({"checks": [check(name="")]}, "checks/0/name", "1 to 64"),
        ({"checks": [check(value="0")]}, "checks/0/value", "must be a number"),
        ({"checks": [check(value=10**400)]}, "checks/0/value", "is too large for a number"),
        ({"checks": [check(unit="x" * 33)]}, "checks/0/unit", "at most 32"),
        ({"checks": [check(device="x" * 129)]}, "checks/0/device", "at most 128"),
        ({"checks": "none"}, "checks", "must be a list"),
        ({"faults": {}}, "faults", "must be a list"),
        ({"agent": "x" * 65}, "agent", "at most 64 are allowed"),
        ({"inventory": []}, "inventory", "must be an object"),
        ({"inventory": {"gpus": [{"index": 0, "uuid": "x" * 97}]}}, "inventory/gpus/0/uuid", "1 to 96"),
        ({"inventory": {"gpus": [{"index": 0, "uuid": "a", "model": "x" * 129}]}}, "inventory/gpus/0/model", "128"),
        ({"inventory": {"gpus": [{"index": 0, "uuid": "a", "serial": "x" * 65}]}}, "inventory/gpus/0/serial", "64"),
        ({"inventory": {"gpus": [{"uuid": "a"}]}}, "inventory/gpus/0/index", "is missing"),
        (
            {"inventory": {"gpus": [{"index": 0, "uuid": "a"}, {"index": 0, "uuid": "b"}]}},
            "inventory/gpus/1/index",
            "used by another GPU",
        ),
        ({"command_results": [{"id": "x", "status": "perhaps"}]}, "command_results/0/status", "must be one of"),
        (
            {"command_results": [{"id": "x", "status": "done", "output": json.loads(deep(40))}]},
            "command_results/0/output",
            "must be an object",
        ),
    ],
)
def test_invalid_parts_do_not_reject_the_faults(changes: dict[str, Any], path: str, reason: str, door: Door) -> None:
    sent = report(fault(), **changes)
    answer = door.report(sent)
    assert answer.status == 202
    [rejected] = answer.body["rejected"]
    assert rejected["path"] == path
    assert reason in rejected["reason"]
    assert answer.body["accepted"] == len(sent["faults"])
    assert (CheckResult.objects.count(), Gpu.objects.count()) == (0, 0)


@pytest.mark.postgres(reason="SQLite does not count the characters of a column")
def test_a_report_at_every_limit_is_stored_whole(door: Door) -> None:
    """Every field at its longest: what the wire takes, the columns hold."""
    gpu = {"index": 0, "uuid": "U" * 96, "pci": "00000000:4e:00.7", "model": "M" * 128, "serial": "S" * 64}
    full = report(
        fault(code=2**31 - 1, gpu_uuid="U" * 96, message="m" * 4096, sequence=2**63 - 1, count=1_000_000),
        fault(kind="check", code="c" * 64, pci=None, gpu_uuid="V" * 96, source="s" * 32),
        boot_id="b" * 64,
        agent="a" * 64,
        checks=[check(name="n" * 64, device="d" * 128, value=-1.7e308, unit="u" * 32, message="m" * 4096)],
        inventory={"driver": "d" * 64, "kernel": "k" * 128, "gpus": [gpu]},
    )
    full["faults"] = [{key: value for key, value in one.items() if value is not None} for one in full["faults"]]
    answer = door.report(full)
    assert (answer.status, answer.body["accepted"], answer.body["rejected"]) == (202, 3, [])
    assert stored() == {
        "Node": 1,
        "Agent": 1,
        "Gpu": 1,
        "CheckResult": 1,
        "Batch": 1,
        "Incident": 2,
        "Occurrence": 2,
    }
    assert Agent.objects.get().boot_id == "b" * 64


def test_items_beyond_the_limit_are_rejected_for_another_batch(door: Door) -> None:
    answer = door.report(report(*[{"kind": "xid", "code": 79}] * 1001))
    assert (answer.status, answer.body["accepted"]) == (202, 1000)
    assert answer.body["rejected"] == [
        {
            "path": "faults/1000",
            "code": "wire_items_many",
            "reason": "a report has at most 1000 faults: send this one and all after it in another batch",
        }
    ]


# --- who is asking


def revoked(cluster: Cluster) -> str:
    made, secret = accounts.make_token("agent", cluster=cluster, node="gpu-1", created_by="t", now=datetime.now(UTC))
    accounts.revoke_token(made, actor="t", now=datetime.now(UTC))
    return secret


def expired(cluster: Cluster) -> str:
    then = datetime.now(UTC) - timedelta(days=2)
    return accounts.make_token(
        "agent", cluster=cluster, node="gpu-1", expires_at=then + timedelta(days=1), created_by="t", now=then
    )[1]


def other_node(cluster: Cluster) -> str:
    return token(cluster=cluster, node="gpu-2")


def enrolment(cluster: Cluster) -> str:
    return token(cluster=cluster)


@each(
    "secret_of, status, reason",
    [
        (lambda cluster: None, 401, "Authorization: Send the header Authorization: Bearer TOKEN."),
        (lambda cluster: "", 401, "Send the header Authorization: Bearer TOKEN."),
        (lambda cluster: "kca_" + "x" * 43, 401, "unknown, expired or revoked"),
        (lambda cluster: "\x00\xff garbled ÿ", 401, "unknown, expired or revoked"),
        (lambda cluster: "k" * 100_000, 401, "unknown, expired or revoked"),
        (revoked, 401, "unknown, expired or revoked"),
        (expired, 401, "unknown, expired or revoked"),
        (lambda cluster: token("operator"), 403, "This token is of kind operator. Agents need kind agent."),
        (lambda cluster: token("viewer", cluster=cluster), 403, "kind viewer"),
        (lambda cluster: token("decision", cluster=cluster), 403, "kind decision"),
        (enrolment, 403, "This token can only enrol; POST /api/v1/agent/enrol"),
        (other_node, 403, "node: This token belongs to node gpu-2, not 'gpu-1'"),
    ],
)
def test_a_token_that_does_not_speak_for_the_node(
    secret_of: Callable[[Cluster], str | None], status: int, reason: str, cluster: Cluster
) -> None:
    door = Door(secret_of(cluster))
    for answer in (door.report(report(fault())), door.commands("node=gpu-1")):
        assert reason in answer.problem(status)
        assert ("www-authenticate" in answer.headers) == (status == 401)
    assert stored() == {}


@each("authorization", ["Basic YTpi", "Bearer", "Bearer  ", "kca_bare", "Token kca_x"])
def test_a_header_that_is_no_bearer(authorization: str, door: Door) -> None:
    answer = door.report(report(fault()), Authorization=authorization)
    assert "Send the header Authorization: Bearer TOKEN." in answer.problem(401)
    assert stored() == {}


def test_a_token_of_another_cluster_speaks_for_its_own(cluster: Cluster, now: datetime) -> None:
    """There is a gpu-1 in each: what is told of one is not told of the other."""
    west = Cluster.objects.create(name="west", created_at=now)
    add_node(cluster, "gpu-1", now)
    assert Door(token(cluster=west, node="gpu-1")).report(report(fault())).status == 202
    assert Incident.objects.get().node.cluster == west
    assert Incident.objects.get().cluster == west


@each("named", ["west", "", "../east", "EAST", "x" * 5000, "\xff", "east,east"])
def test_a_header_that_names_another_cluster_is_refused(named: str, door: Door) -> None:
    for answer in (
        loop.run(ask_with_cluster(door, named)),
        loop.run(ask_with_cluster(door, named, path="enrol", body=b'{"node": "gpu-1"}')),
    ):
        assert "X-Kcover-Cluster: This token belongs to cluster east, not" in answer.problem(403)
        assert len(answer.body["detail"]) < 300
    assert stored() == {}


def test_a_header_that_names_the_tokens_cluster_is_fine(door: Door) -> None:
    assert loop.run(ask_with_cluster(door, "east")).status == 202


async def ask_with_cluster(door: Door, named: str, *, path: str = "reports", body: bytes = b"") -> Answer:
    return await door.ask("POST", path, body or encoded(report(fault())), X_Kcover_Cluster=named or " ")


# --- addresses, methods, the question for commands


@each(
    "method, path, status, reason",
    [
        ("GET", "reports", 405, "reports requires POST, not GET"),
        ("PUT", "reports", 405, "reports requires POST, not PUT"),
        ("DELETE", "enrol", 405, "enrol requires POST, not DELETE"),
        ("POST", "commands", 405, "commands requires GET, not POST"),
        ("POST", "report", 404, "Supported: reports, enrol, commands"),
        ("GET", "", 404, "Supported: reports, enrol, commands"),
        ("GET", "x" * 4000, 404, "Supported: reports, enrol, commands"),
    ],
)
def test_an_unknown_address_or_method_is_refused(method: str, path: str, status: int, reason: str, door: Door) -> None:
    answer = door.call(method, path, b"{}")
    detail = answer.problem(status)
    assert reason in detail
    assert len(detail) < 400
    if status == 405:
        assert answer.headers["allow"] == {"commands": "GET"}.get(path, "POST")


@each("wait", ["soon", "-1", "61", "1e9", "nan", "inf", "", "0x10", "1,5", "9" * 5000])
def test_an_invalid_wait_is_refused(wait: str, door: Door) -> None:
    answer = door.commands(f"node=gpu-1&wait={wait}")
    detail = answer.problem(400)
    assert detail.startswith("wait: ")
    assert answer.body["code"] == "out_of_range"
    assert len(detail) < 120
    assert answer.body["title"] == "The command request cannot be read"


@pytest.mark.parametrize("query", ["", "wait=0", "node=gpu-1", "node=gpu-1&wait=0.5", "node=gpu-1&wait=0&x=1"])
def test_a_valid_poll_is_answered(query: str, door: Door, cluster: Cluster, now: datetime) -> None:
    add_node(cluster, "gpu-1", now)
    answer = door.commands(query)
    assert (answer.status, answer.body) == (200, {"commands": []})


@each("node", ["gpu-2", "", "%00", "GPU-1", "x" * 1000])
def test_a_poll_for_another_node_is_refused(node: str, door: Door) -> None:
    assert "This token belongs to node gpu-1" in door.commands(f"node={node}").problem(403)


# --- good reports that look odd


def test_a_node_that_the_cluster_does_not_have_is_kept_as_unknown(door: Door) -> None:
    assert door.report(report(fault())).status == 202
    node = Node.objects.get()
    assert (node.name, node.in_cluster) == ("gpu-1", False)
    assert Incident.objects.get().node == node


@pytest.mark.parametrize(
    ("sent_at", "skew"),
    [
        (timedelta(days=1), 86_400),
        (timedelta(days=-1), -86_400),
        ("1970-01-01T00:00:00Z", None),
        ("9999-06-30T12:00:00+14:00", None),
    ],
)
def test_a_wrong_clock_is_shown_and_does_not_reject_a_report(
    sent_at: str | timedelta, skew: int | None, door: Door
) -> None:
    sent_at = moment(sent_at) if isinstance(sent_at, timedelta) else sent_at
    answer = door.report(report(fault(seen_at=sent_at), sent_at=sent_at))
    assert (answer.status, answer.body["accepted"]) == (202, 1)
    agent, incident = Agent.objects.get(), Incident.objects.get()
    if skew is not None:
        assert agent.skew == pytest.approx(skew, abs=60)
    for at in (agent.seen_at, incident.opened_at, incident.last_at, Occurrence.objects.get().at):
        assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    again = door.report(report(fault(), sent_at=moment()))
    assert again.body["accepted"] == 1
    assert Incident.objects.get().count == 2


def test_times_at_the_ends_of_the_calendar_are_shown(door: Door, settings: Any) -> None:
    """Far in time, in any zone: lists of events still answer."""
    settings.TIME_ZONE = "Pacific/Kiritimati"
    for at in ("9999-12-30T09:00:00Z", "0001-01-02T15:00:00Z"):
        assert door.report(report(fault(seen_at=at))).body["accepted"] == 1
    viewer = Api(token("viewer"))
    listed = viewer.get("events")
    assert listed.status_code == 200
    assert len(listed.json()["results"]) == 2


# --- again, and at once


def test_the_same_batch_again_is_a_duplicate(door: Door) -> None:
    sent = report(fault(), fault(code=62), {"kind": "gremlin"}, checks=[check()])
    first, second = door.report(sent), door.report(sent)
    assert (first.body["accepted"], first.body["duplicates"], len(first.body["rejected"])) == (3, 0, 1)
    assert (second.body["accepted"], second.body["duplicates"], len(second.body["rejected"])) == (0, 3, 1)
    assert {row.count for row in Incident.objects.all()} == {1}
    upper = door.report({**sent, "batch_id": sent["batch_id"].upper()})
    assert upper.body["duplicates"] == 3


def test_the_same_batch_many_times_at_once_counts_once(door: Door) -> None:
    sent = encoded(report(fault(), checks=[check()]))
    assert door.report(report()).status == 202  # the token is remembered from here on

    async def all_at_once() -> list[Answer]:
        return await asyncio.gather(*(door.ask("POST", "reports", sent) for _ in range(8)))

    answers = loop.run(all_at_once())
    assert [one.status for one in answers] == [202] * 8
    assert sorted((one.body["accepted"], one.body["duplicates"]) for one in answers) == [(0, 2)] * 7 + [(2, 0)]
    assert Incident.objects.get().count == 1


def test_a_batch_id_used_by_another_node_is_that_nodes_own(door: Door, cluster: Cluster) -> None:
    batch = str(uuid.uuid4())
    assert door.report(report(fault(), batch_id=batch)).body["accepted"] == 1
    other = Door(token(cluster=cluster, node="gpu-2"))
    assert other.report(report(fault(), node="gpu-2", batch_id=batch)).body["accepted"] == 1


# --- trouble on this side


def test_an_internal_error_is_a_problem_document(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret of the code")

    monkeypatch.setattr(incidents, "ingest", broken)
    answer = door.report(report(fault()))
    detail = answer.problem(500)
    assert "Keep the report and retry" in detail
    assert "secret" not in detail
    assert answer.headers["retry-after"] == "5"
    assert stored() == {}


def test_enrolment_leaves_no_token_behind_when_it_is_refused(cluster: Cluster) -> None:
    door = Door(enrolment(cluster))
    for body, reason in [
        (b"", 'body: The body is empty. Send {"node": "NAME"}'),
        (b"{", "body: The body is not JSON in UTF-8"),
        (b"\xff", "body: The body is not JSON in UTF-8"),
        (deep(100_000), "body: The body is nested too deeply"),
        (b"[]", "body: Must be an object, not a list"),
        (b'{"node": "gpu-1", "node": "gpu-2"}', "body: The body has a key twice in one object"),
        (b"{}", 'node: Missing. Send {"node": "NAME"}'),
        (b'{"node": 5}', "node: 5 is not a node name"),
        (b'{"node": "GPU_1"}', "is not a node name"),
        (b'{"node": "gpu-1\\u0000"}', "is not a node name"),
        (encoded({"node": "x" * 254}), "is not a node name"),
        (encoded({"node": "gpu-1\n"}), "is not a node name"),
    ]:
        answer = door.enrol(body)
        assert reason in answer.problem(400)
        assert answer.body["title"] == "The enrolment cannot be read"
    assert door.enrol(encoded({"node": "x" * LIMIT})).problem(413)
    assert ApiToken.objects.count() == 1
