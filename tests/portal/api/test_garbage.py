"""Invalid values for every field of the OpenAPI document: refused with a problem document, never a server error."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pytest
from django.http import HttpRequest, HttpResponse

from kcover_portal.accounts.models import User
from kcover_portal.fleet.models import Cluster
from kcover_portal.policies import services as policies
from tests.portal.api import openapi
from tests.portal.api.conftest import Api, add_node, add_story
from tests.portal.policies.texts import policy
from tests.share import in_share

pytestmark = pytest.mark.django_db

# Each has caught something once, or stands for a kind of its own: many more would find the same.
WORDS = (
    *("", "\0", "a\0b", "\U0001f4a5", "../..", "a/b", "\r\nX-Y: z", "-1", "1.5", "9" * 25, "9" * 5000, "NaN", "²"),
    *("{}", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+23:59", "2026-01-01T00:00:00+23:59", "x" * 3000),
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e308, 2**31, 2**63, 10**30, [], {}, [[]], [{}], {"a": {}}, [None], ["\0"]),
    *(word for word in WORDS if "\0" not in word),
    *("a\0b", "\ud800"),
)
# Each field gets one value in so many, and the next field the next ones. Fields of one kind are many (cursors, names,
# times), so that each kind meets each value.
STRIDE = 3
PARTS = 8  # of the operations; a run has one
CHOSEN = [part for part in range(PARTS) if in_share(part, shares=PARTS)]
KCE = "rescue-actions"  # answers its refusals in KCE's own shape
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Method, address and description of every operation."""
    document = openapi.document()
    schemas = document["components"]["schemas"]
    found = []
    for path, described in document["paths"].items():
        for method, operation in described.items():
            if method in METHODS and path.startswith("/api/v1/"):
                body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
                if "$ref" in body:
                    body = schemas[body["$ref"].rpartition("/")[2]]
                found.append((method, path.removeprefix("/api/v1/"), {**operation, "body": body}))
    return found


def by_ada(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A middleware: every request is ada's, read once. Her rows are half of the queries of a refused request."""
    ada = User.objects.get(username="ada")

    def middleware(request: HttpRequest) -> HttpResponse:
        request.user = ada
        return get_response(request)

    return middleware


@pytest.fixture
def admin_with_rows(east: Cluster, admin: Api, now: datetime, settings: Any) -> Api:
    after = settings.MIDDLEWARE.index("django.contrib.auth.middleware.AuthenticationMiddleware") + 1
    settings.MIDDLEWARE = [*settings.MIDDLEWARE[:after], f"{__name__}.by_ada", *settings.MIDDLEWARE[after:]]
    add_story(add_node(east, "gpu-1", now), now)
    policies.apply(policy("a"), author="t", reason="", now=now)
    return admin


GOOD = {"cluster": "east", "name": "gpu-1", "id": "1", "verb": "cordon", "n": "1", "need": "0123456789abcdef"}
JOB = {"namespace": "train", "kind": "PyTorchJob", "action": "restart"}


def filled(path: str, **changes: str) -> str:
    """The address with good values in its places, or with a bad one in one of them."""
    good = GOOD if path.startswith("nodes/") else GOOD | JOB | {"name": "a", "verb": "cancel"}
    for name, value in {**good, **changes}.items():
        path = path.replace("{" + name + "}", quote(value, safe=""))
    assert "{" not in path, path
    return path


def check(answer: Any, sent: object) -> None:
    assert answer.status_code < 500, sent
    if answer.status_code >= 400 and KCE in str(sent) and answer.headers["Content-Type"] == "application/json":
        assert set(answer.json()) == {"code", "message"}, sent
    elif answer.status_code >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json", (sent, answer.content[:200])
        body = answer.json()
        assert body["status"] == answer.status_code
        assert body["detail"], sent
        assert len(answer.content) < 50_000, sent


def some(values: Sequence[Any], place: int) -> Sequence[Any]:
    return values[place % STRIDE :: STRIDE]


def parameters(operation: dict[str, Any], place: str) -> Iterator[str]:
    return (one["name"] for one in operation.get("parameters", ()) if one["in"] == place)


@pytest.mark.parametrize("part", CHOSEN)
def test_garbage_in_the_address(operations: Any, admin_with_rows: Api, part: int) -> None:
    for method, path, operation in operations[part::PARTS]:
        for name in parameters(operation, "path"):
            for word in WORDS:
                address = filled(path, **{name: word})
                check(admin_with_rows.call(method, address, {} if method != "get" else None), (method, address))


@pytest.mark.parametrize("part", CHOSEN)
def test_garbage_in_parameters(operations: Any, admin_with_rows: Api, part: int) -> None:
    reads = [(path, operation) for method, path, operation in operations if method == "get"]
    pairs = [(path, name) for path, operation in reads for name in parameters(operation, "query")]
    for place, (path, name) in list(enumerate(pairs))[part::PARTS]:
        for word in some(WORDS, place):
            address = f"{filled(path)}?{name}={quote(word, safe='')}"
            check(admin_with_rows.get(address), address)


@pytest.mark.parametrize("part", CHOSEN)
def test_garbage_in_headers(operations: Any, admin_with_rows: Api, part: int) -> None:
    for method, path, operation in operations[part::PARTS]:
        for name in parameters(operation, "header"):
            for word in ("", " ", "*", "W/", '"1"', '"' * 9, "9" * 5000, "ÿ", "x" * 3000, "a, b"):
                sent = {name.replace("-", "_"): word}
                check(admin_with_rows.call(method, filled(path), {}, **sent), (method, path, name, word))


@pytest.mark.parametrize("part", CHOSEN)
def test_garbage_in_bodies(operations: Any, admin_with_rows: Api, part: int) -> None:
    for method, path, body in list(invalid_bodies(operations))[part::PARTS]:
        sent = json.dumps(body)
        answer = admin_with_rows.client.generic(
            method.upper(), f"/api/v1/{filled(path)}", sent, content_type="application/json"
        )
        check(answer, (method, path, sent[:200]))


def invalid_bodies(operations: Any) -> Iterator[tuple[str, str, Any]]:
    """Method, address and body: values alone, as each field, and as all fields of an operation."""
    places = itertools.count()
    for method, path, operation in operations:
        if method in ("post", "put", "patch"):
            properties = operation["body"].get("properties", {})
            yield from ((method, path, value) for value in some(VALUES, next(places)))
            yield from ((method, path, dict.fromkeys(properties, value)) for value in some(VALUES, next(places)))
            for name in properties:
                yield from ((method, path, {name: value}) for value in some(VALUES, next(places)))


def test_garbage_as_yaml(admin_with_rows: Api) -> None:
    for path in ("policies", "policies/validate"):
        for text in (
            *(word.encode() for word in WORDS),
            b"\xff",
            b"a: &a [*a]",
            b"[" * 20_000,
            b"- " * 20_000,
            b"\t\t",
        ):
            answer = admin_with_rows.client.post(f"/api/v1/{path}", text, content_type="application/yaml")
            check(answer, (path, text[:60]))
