"""Admission policies of deploy/ in force on a real API server."""

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
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
JSON_PATCH = "application/json-patch+json"
METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
Object = dict[str, Any]


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


def patched(rig: real.ApiServerRig, at: str, patch: Object) -> int:
    """The status of a merge patch by the portal's account."""
    status: int = rig.portal.ask("PATCH", at, patch, MERGE)[0]
    return status


def denial(answer: tuple[int, Any]) -> str:
    """The message of the validation that denied a request; empty if it was answered otherwise."""
    status, body = answer
    return str(body["message"].partition("denied request: ")[2]) if status == 422 else ""


def denials(rig: real.ApiServerRig, at: str, changes: Iterable[Callable[[Object], object]]) -> set[str]:
    """With which messages the portal's account is denied the changes of an object. None is stored.

    What the server itself makes of a change does not count: it refuses some to everybody, and drops others.
    """
    found = set()
    for number, change in enumerate(changes):
        old = rig.admin.demand("GET", at)
        new = copy.deepcopy(old)
        change(new)
        patch = [{"op": "add", "path": f"/{part}", "value": new.get(part, {})} for part in ("metadata", "spec")]
        status, answer = rig.admin.ask("PATCH", f"{at}?dryRun=All", patch, JSON_PATCH)
        if status == 200 and _open(answer) != _open(old):
            message = denial(rig.portal.ask("PATCH", f"{at}?dryRun=All", patch, JSON_PATCH))
            assert message, number
            found.add(message)
    return found


def _open(one: Object) -> list[Any]:
    """What of an object a user may change."""
    return [one.get("spec"), *(one["metadata"].get(key) for key in METADATA)]
