"""What web asks a cluster for. Web has a kubeconfig with fewer rights, so that no page may ask for more."""

from collections.abc import Iterator

import pytest

from kcover_portal.fleet.services import cluster_access
from kcover_portal.jobs import queries as jobs
from kcover_portal.kube import port
from tests.contract import rbac
from tests.portal.api.test_decision_doors import SAFE, doors
from tests.portal.console.conftest import Person
from tests.portal.rescue.test_actions_restart_jobs import add_job
from tests.portal.rescue.world import NODE, World
from tests.share import in_share

pytestmark = pytest.mark.django_db
METHODS = ("get", "post", "put", "patch", "delete")
SHARES = 2  # of the addresses


@pytest.fixture
def narrow() -> Iterator[World]:
    """A cluster that refuses every verb that the second kubeconfig has no right for."""
    jobs.forget()
    one = World()
    add_job(one, "llm", NODE)
    one.fault(79)
    one.kube.calls.clear()
    one.kube.forbidden.add(cluster_access.LIST_NODES)  # so the test of the rights does not count them
    for verb in rbac.verbs_of_port() - rbac.VERBS_OF_WEB:
        one.kube.fail(verb, port.RefusedByServer("forbidden"), times=10**6)
    yield one
    one.uninstall()


def test_every_page_and_endpoint_lives_with_fewer_rights(narrow: World, person: Person) -> None:
    client = person("admin")
    client.raise_request_exception = False
    name = narrow.cluster.name
    job = f"{name}/train/PyTorchJob/llm"
    check = {"cluster": name, "checks": ["ping"], "nodes": [NODE], "reason": "x", "invasive": True}
    paths = [path.replace("east", name, 1).replace("east", NODE) for _, path in doors()]
    paths = [path for path in paths if "sign-out" not in path and "sessions" not in path]
    paths = [path for number, path in enumerate(paths) if in_share(number, shares=SHARES)]
    broken = []
    asking = [f"/jobs/{job}/restart/", f"/jobs/{job}/stop/", "/jobs/", f"/nodes/{name}/{NODE}/drain/"]  # in each share
    for path in [*asking, *paths]:
        for method in METHODS:
            for query in ("",) if method in SAFE else ("?dry_run=1", ""):
                content = {} if method in SAFE else {"data": check, "content_type": "application/json"}
                answer = getattr(client, method)(path + query, **content)
                if answer.status_code == 500:
                    broken.append((method, path))
                elif answer.status_code == 405:  # also with the other query
                    break
    asked = {call.verb for call in narrow.kube.calls}
    assert not broken
    assert {"list_pods", "workloads"} <= asked <= rbac.VERBS_OF_WEB
