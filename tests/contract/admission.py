"""Admission policies of deploy/ in force on a real API server."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import waiting
from tests.contract import apiserver as real
from tests.deploy.manifests import ROOT, documents

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
PLACES = {
    "ValidatingAdmissionPolicy": POLICIES,
    "ValidatingAdmissionPolicyBinding": f"{POLICIES.removesuffix('policies')}policybindings",
}
MERGE = "application/merge-patch+json"


@contextlib.contextmanager
def in_force(rig: real.ApiServerRig, file: str, *, denied: Callable[[], int]) -> Iterator[None]:
    """The policy of a file while the block runs. ``denied``: the status of a request that just this policy denies.

    Skips the test on a server without such policies.
    """
    if rig.admin.ask("GET", POLICIES)[0] != 200:
        pytest.skip("this API server has no ValidatingAdmissionPolicy (1.30)")
    placed: list[str] = []
    try:
        for document in documents(ROOT / "deploy" / file):
            place = PLACES[document["kind"]]
            rig.admin.demand("POST", place, document)
            placed.append(f"{place}/{document['metadata']['name']}")
        waiting.until(lambda: denied() == 422, "the policy")
        yield
    finally:
        for place in reversed(placed):
            rig.admin.demand("DELETE", place)
        waiting.until(lambda: denied() != 422, "the end of the policy")


def patched(rig: real.ApiServerRig, at: str, patch: dict[str, Any]) -> int:
    """The status of a merge patch by the portal's account."""
    status: int = rig.portal.ask("PATCH", at, patch, MERGE)[0]
    return status


def denial(answer: tuple[int, Any]) -> str:
    """The message of the validation that denied a request; empty if it was answered otherwise."""
    status, body = answer
    return str(body["message"].partition("denied request: ")[2]) if status == 422 else ""
