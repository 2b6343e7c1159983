"""The OpenAPI document and its page: complete, and from this server only."""

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from kcover.plans import plan
from kcover_portal.api import schema_texts
from tests.portal.api.conftest import Api

pytestmark = pytest.mark.django_db


HAN = re.compile(r"[\u4e00-\u9fff]")


def document(*options: str) -> dict:
    out = StringIO()
    call_command("spectacular", *options, "--format", "openapi-json", stdout=out)
    return json.loads(out.getvalue())


@pytest.fixture(scope="module")
def schema() -> dict:
    return document("--validate", "--fail-on-warn")


def test_every_operation_documents_its_problems(schema: dict) -> None:
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/api/v1/"):
                problems = {
                    status
                    for status, response in operation["responses"].items()
                    if "application/problem+json" in response.get("content", {})
                }
                own = {"400", "409"} if path.endswith("/rescue-actions") else set()  # KCE's shape
                assert {"400", "401", "403"} - own <= problems, (method, path)
                if method == "post":
                    assert {"404", "409", "413", "415", "422"} - own <= problems, path
                named = {one["name"] for one in operation.get("parameters", ())}
                assert ("If-Match" in named) == ("412" in problems), (method, path)


def test_every_address_is_documented(schema: dict) -> None:
    names = {path.removeprefix("/api/v1/").split("/")[0] for path in schema["paths"] if path.startswith("/api/v1/")}
    assert names >= {"clusters", "nodes", "gpus", "incidents", "events", "decisions", "rescues", "approvals"}
    assert names >= {"policies", "audit", "tokens", "pause", "resume"}
    verbs = schema["paths"]["/api/v1/nodes/{cluster}/{name}/{verb}"]["post"]["parameters"]
    [verb] = [one for one in verbs if one["name"] == "verb"]
    assert sorted(verb["schema"]["enum"]) == sorted(plan.VERBS)


def test_kinds_of_records_operations_and_parameters_have_texts_in_both_languages(schema: dict) -> None:
    used = {tag for methods in schema["paths"].values() for one in methods.values() for tag in one["tags"]}
    assert used == set(schema_texts.TAGS) == {tag["name"] for tag in schema["tags"]}
    stop = schema["paths"]["/api/v1/check-runs/{id}/stop"]["post"]
    assert stop["summary"] == "Withdraws the checks that have not begun and requests no others"
    assert stop["description"] == "409 if the run has ended."
    chinese = document("--lang", "zh-hans")
    assert [tag["name"] for tag in chinese["tags"] if not HAN.search(tag["description"])] == []
    texts = schema_texts.texts(chinese) | schema_texts.parameter_texts(chinese)
    assert sorted(text for text in texts if not HAN.search(text)) == ["GPU UUID"]
    fields = schema_texts.field_texts(chinese)
    assert len(fields) > 400
    assert sorted(text for text in fields if not HAN.search(text)) == ["GB/s", "UUID", "cluster/name"]


def test_filters_and_pages_are_documented(schema: dict) -> None:
    named = {one["name"] for one in schema["paths"]["/api/v1/incidents"]["get"]["parameters"]}
    assert named >= {"cursor", "page_size", "cluster", "node", "kind", "code", "state", "drill", "since", "until", "q"}


def test_programs_sign_in_with_a_bearer_token(schema: dict) -> None:
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/api/schema/", "/api/docs/"])
def test_the_documentation_is_readable_as_its_setting_says(path: str, viewer: Api, settings: Any) -> None:
    signed_in = viewer.client
    assert Client().get(path).status_code == 401
    assert signed_in.get(path, headers=viewer.headers).status_code == 200
    settings.KCOVER_API_DOCS = "public"
    assert Client().get(path).status_code == 200
    settings.KCOVER_API_DOCS = "off"
    assert signed_in.get(path, headers=viewer.headers).status_code == 404


def test_swagger_needs_nothing_from_elsewhere(settings: Any) -> None:
    settings.KCOVER_API_DOCS = "public"
    client = Client()
    page = client.get("/api/docs/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "swagger-ui" in text
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//(?!testserver)""", text)
    assert "<script>" not in text
    policy = page.headers["Content-Security-Policy"]
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "script-src 'self'" in policy
    assert "nonce-" not in policy
    assert "window.ui" not in text  # its script is a static file
    assert client.get("/api/schema/").status_code == 200
