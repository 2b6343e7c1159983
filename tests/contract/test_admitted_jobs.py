"""A real API server admits the Jobs that the portal makes to their namespaces, and no others."""

import copy
from typing import Any

import pytest

from tests.contract import apiserver as real
from tests.contract.admission import in_force
from tests.deploy import test_pair_test_policy, test_reboot_job_policy
from tests.deploy.test_pair_test_policy import jobs  # noqa: F401
from tests.deploy.test_reboot_job_policy import job  # noqa: F401

pytestmark = [pytest.mark.needs_cluster, real.needs_assets, pytest.mark.django_db]


@pytest.fixture(params=["reboot-job", "pair-test"])
def admission(request: pytest.FixtureRequest, apiserver: real.ApiServerRig) -> Any:
    """The policy in force, the Job that it is about, and changes of that Job."""
    if request.param == "reboot-job":
        made, changes = request.getfixturevalue("job"), test_reboot_job_policy.CHANGES
    else:
        made, changes = request.getfixturevalue("jobs")[0], test_pair_test_policy.CHANGES
    body = sent(made)
    other = copy.deepcopy(body)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "evil.example.com/x:1"  # which is valid otherwise
    with in_force(apiserver, f"{request.param}-policy.yaml", denied=lambda: posted(apiserver, other)):
        yield apiserver, body, changes


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
