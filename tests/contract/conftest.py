"""The servers that the suite runs against."""

import os
from collections.abc import Iterator

import pytest

from tests.contract import over_http, rigs

needs_assets = pytest.mark.skipif(
    "KUBEBUILDER_ASSETS" not in os.environ, reason="KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"
)
REAL = pytest.param("apiserver", marks=[pytest.mark.needs_cluster, needs_assets])


@pytest.fixture(scope="session")
def _apiserver_folder() -> Iterator[str]:
    with over_http.kube_apiserver() as folder:
        yield folder


@pytest.fixture(params=["fake", "simulator", REAL])
def rig(request: pytest.FixtureRequest) -> Iterator[rigs.Rig]:
    """A cluster from both sides."""
    if request.param == "fake":
        yield rigs.FakeRig()
    elif request.param == "simulator":
        with over_http.simulator() as made:
            yield made
    else:
        with over_http.apiserver(request.getfixturevalue("_apiserver_folder")) as made:
            yield made


@pytest.fixture
def simulator() -> Iterator[over_http.SimulatorRig]:
    """The simulator alone, for what only it can play: faults of the API server, a forgotten history."""
    with over_http.simulator() as made:
        yield made
