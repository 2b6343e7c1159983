"""A real API server admits the Jobs that the portal makes to their namespaces, and no others."""

import copy
from typing import Any

import pytest

from tests import waiting
from tests.contract import apiserver as real
from tests.contract.test_job_changes import PLACES, POLICIES
from tests.deploy import test_pair_test_policy, test_reboot_job_policy
from tests.deploy.manifests import ROOT, documents
from tests.deploy.test_pair_test_policy import jobs  # noqa: F401
from tests.deploy.test_reboot_job_policy import job  # noqa: F401

pytestmark = [pytest.mark.needs_cluster, real.needs_assets, pytest.mark.django_db]


@pytest.fixture(params=["reboot-job", "pair-test"])
def admission(request: pytest.FixtureRequest, apiserver: real.ApiServerRig) -> Any:
    """The policy in force, the Job that it is about, and changes of that Job."""
    if apiserver.admin.ask("GET", POLICIES)[0] != 200:
        pytest.skip("this API server has no ValidatingAdmissionPolicy (1.30)")
    if request.param == "reboot-job":
        made, changes = request.getfixturevalue("job"), test_reboot_job_policy.CHANGES
    else:
        made, changes = request.getfixturevalue("jobs")[0], test_pair_test_policy.CHANGES
    placed = []
    for document in documents(ROOT / "deploy" / f"{request.param}-policy.yaml"):
        place = PLACES[document["kind"]]
        apiserver.admin.demand("POST", place, document)
        placed.append(f"{place}/{document['metadata']['name']}")
    body = sent(made)
    other = copy.deepcopy(body)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "evil.example.com/x:1"  # which is valid otherwise
    waiting.until(lambda: posted(apiserver, other) == 422, "the policy")
    yield apiserver, body, changes
    for place in reversed(placed):
        apiserver.admin.demand("DELETE", place)


def sent(made: dict[str, Any]) -> dict[str, Any]:
    """The Job as the portal sends it: without what a server adds."""
    meta = {key: made["metadata"][key] for key in ("name", "namespace", "labels") if key in made["metadata"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": copy.deepcopy(made["spec"])}


def posted(rig: real.ApiServerRig, body: dict[str, Any]) -> int:
    """The status of a try to create the Job by the portal's account; nothing is stored."""
    place = rig.place("Job", body["metadata"]["namespace"])
    status: int = rig.portal.ask("POST", f"{place}?dryRun=All", body)[0]
    return status


def test_the_portals_job_is_admitted_and_no_other(admission: Any) -> None:
    rig, body, changes = admission
    assert posted(rig, body) == 201
    for number, change in enumerate(changes):
        other = copy.deepcopy(body)
        change(other)
        assert posted(rig, other) == 422, number
