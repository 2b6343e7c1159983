"""The expressions of all admission policies of deploy/ fit the types of a real API server."""

import pytest

from tests import waiting
from tests.contract import apiserver as real
from tests.contract.admission import POLICIES
from tests.deploy import chart

pytestmark = [pytest.mark.needs_cluster, real.needs_assets]


def test_the_server_warns_of_no_expression(apiserver: real.ApiServerRig) -> None:
    if not real.PolicyStatus.is_there():
        pytest.skip("KUBEBUILDER_ASSETS has no kube-controller-manager")
    policies = chart.of_kind(chart.render(chart.LEAST), "ValidatingAdmissionPolicy")
    assert len(policies) == 5

    def judged(name: str) -> bool:
        return "typeChecking" in apiserver.admin.demand("GET", f"{POLICIES}/{name}").get("status", {})

    with real.PolicyStatus(apiserver.unrestricted_kubeconfig):
        try:
            for policy in policies.values():
                apiserver.admin.demand("POST", POLICIES, policy)
            for name in policies:
                waiting.until(lambda name=name: judged(name), name)
                found = apiserver.admin.demand("GET", f"{POLICIES}/{name}")
                assert found["status"]["typeChecking"] == {}, name
        finally:
            for name in policies:
                apiserver.admin.ask("DELETE", f"{POLICIES}/{name}")
