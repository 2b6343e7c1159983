"""A real API server admits the Jobs that the portal makes to their namespaces, and no others."""

import copy
from typing import Any

import pytest

from tests.contract import apiserver as real
from tests.contract.admission import denial, in_force
from tests.deploy import test_pair_test_policy, test_reboot_job_policy
from tests.deploy.test_pair_test_policy import jobs  # noqa: F401
from tests.deploy.test_reboot_job_policy import job  # noqa: F401

pytestmark = [pytest.mark.needs_cluster, real.needs_assets, pytest.mark.django_db]


@pytest.fixture(params=["reboot-job", "pair-test"])
def admission(request: pytest.FixtureRequest, apiserver: real.ApiServerRig) -> Any:
    """The policy in force, the Job that it is about, and changes of that Job with the messages of their denials."""
    if request.param == "reboot-job":
        made, about = request.getfixturevalue("job"), test_reboot_job_policy
    else:
        made, about = request.getfixturevalue("jobs")[0], test_pair_test_policy
    body = sent(made)
    other = copy.deepcopy(body)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "evil.example.com/x:1"  # which is valid otherwise
    with in_force(apiserver, f"{request.param}-policy.yaml", denied=lambda: posted(apiserver, other)[0]):
        yield apiserver, body, about.CHANGES, about.POLICY.messages


def sent(made: dict[str, Any]) -> dict[str, Any]:
    """The Job as the portal sends it: without what a server adds."""
    meta = {key: made["metadata"][key] for key in ("name", "namespace", "labels") if key in made["metadata"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": copy.deepcopy(made["spec"])}


def posted(rig: real.ApiServerRig, body: dict[str, Any]) -> tuple[int, Any]:
    """The answer to a try to create the Job by the portal's account; nothing is stored."""
    place = rig.place("Job", body["metadata"]["namespace"])
    return rig.portal.ask("POST", f"{place}?dryRun=All", body)


def test_the_portals_job_is_admitted_and_no_other(admission: Any) -> None:
    rig, body, changes, messages = admission
    assert posted(rig, body)[0] == 201
    found = set()
    for number, change in enumerate(changes):
        other = copy.deepcopy(body)
        change(other)
        answer = posted(rig, other)
        assert answer[0] == 422, number
        found.add(denial(answer))
    assert found - {""} == messages  # some changes the server itself refuses
