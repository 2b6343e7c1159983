"""Policies as ``kubectl get -o yaml`` exports them can be applied as they are."""

from datetime import datetime

import pytest
import yaml

from kcover.policy import document
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Revision

pytestmark = pytest.mark.django_db

ONE = """\
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"rescue.ksyun.com/v1"}
  creationTimestamp: "2026-01-02T03:04:05Z"
  generation: 2
  managedFields:
  - apiVersion: rescue.ksyun.com/v1
    fieldsType: FieldsV1
    fieldsV1: {"f:spec": {".": {}, "f:rules": {}}}
    manager: kubectl
    operation: Update
    time: "2026-01-02T03:04:05Z"
  name: NAME
  resourceVersion: "12345"
  uid: 5f0e8e0a-53a1-4c9e-9d6c-1e2f3a4b5c6d
spec:
  rules:
  - actions:
    - name: cordon
    errorCode: ["62"]
    priority: 10
status:
  conditions: [{type: Accepted, status: "True"}]
"""


def exported(*names: str) -> str:
    """What ``kubectl get rescuepolicies -o yaml`` prints."""
    items = [yaml.safe_load(ONE.replace("NAME", name)) for name in names]
    return yaml.safe_dump({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})


def test_fields_of_the_server_are_ignored_and_change_no_revision(now: datetime) -> None:
    text = ONE.replace("NAME", "one")
    services.apply(text, author="user:anna", reason="", now=now)
    services.apply(text.replace("12345", "12346"), author="user:anna", reason="", now=now)
    [revision] = Revision.objects.all()
    assert revision.document["metadata"] == {"name": "one"}
    assert set(revision.document) == {"apiVersion", "kind", "metadata", "spec"}
    assert yaml.safe_load(services.export()) == revision.document


def test_a_list_is_its_items(now: datetime) -> None:
    applied = services.apply(exported("one", "two"), author="user:anna", reason="", now=now)
    assert [row.name for row in applied] == ["one", "two"]
    assert [one.policy for one in queries.candidates()] == ["one", "two"]
    texts = [yaml.safe_load(revision.text) for revision in Revision.objects.order_by("policy__name")]
    assert [text["metadata"] for text in texts] == [{"name": "one"}, {"name": "two"}]


def test_a_problem_in_a_list_has_its_line() -> None:
    text = exported("one", "two").replace("name: two", "name: Two")
    [problem] = services.validate(text).problems
    assert (problem.path, text.splitlines()[problem.line - 1].strip()) == ("metadata.name", "name: Two")


def test_the_same_name_twice_in_a_list_is_refused() -> None:
    [problem] = services.validate(exported("one", "one")).problems
    assert problem.reason.code == "policy_twice"


@pytest.mark.parametrize("items", [[], None, 7, "x"])
def test_a_list_without_items_is_refused(items: object) -> None:
    validated = services.validate(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    assert validated.problems
    assert validated.policies == ()


@pytest.mark.parametrize("item", [None, 7, [], {"kind": "List", "items": []}])
def test_an_item_that_is_no_policy_is_refused(item: object) -> None:
    assert services.validate(yaml.safe_dump({"kind": "List", "items": [item]})).problems


def test_metadata_that_people_wrote_is_kept() -> None:
    metadata = {"name": "a", "labels": {"b": "c"}, "annotations": {"d": "e", "uid": "f"}}
    assert document.without_server_fields({"metadata": metadata, "spec": {"status": 1}}) == {
        "metadata": metadata,
        "spec": {"status": 1},
    }
    assert document.without_server_fields(7) == 7
    assert document.without_server_fields({"metadata": 7, "status": 1}) == {"metadata": 7}
    assert document.items({"kind": "RescuePolicyList", "items": [1]}) == [1]
    assert document.items({"kind": "RescuePolicy", "items": [1]}) is None
