"""The servers that the suite runs against."""

from collections.abc import Iterator

import pytest

from tests.contract import apiserver as real, over_http, rigs

REAL = pytest.param("apiserver", marks=[pytest.mark.needs_cluster, real.needs_assets])


@pytest.fixture(scope="session")
def _apiserver() -> Iterator[real.Installed]:
    with real.installed() as server:
        yield server


@pytest.fixture(params=["fake", "simulator", REAL])
def rig(request: pytest.FixtureRequest) -> Iterator[rigs.Rig]:
    """A cluster from both sides."""
    if request.param == "fake":
        yield rigs.FakeRig()
    elif request.param == "simulator":
        with over_http.simulator() as made:
            yield made
    else:
        yield real.ApiServerRig(request.getfixturevalue("_apiserver"))


@pytest.fixture(params=["simulator", REAL])
def http_rig(request: pytest.FixtureRequest) -> Iterator[over_http.HttpRig]:
    """A server that is spoken to over HTTP and knows what the portal may do."""
    if request.param == "simulator":
        with over_http.simulator() as made:
            yield made
    else:
        yield real.ApiServerRig(request.getfixturevalue("_apiserver"))


@pytest.fixture
def simulator() -> Iterator[over_http.SimulatorRig]:
    """The simulator alone, for what only it can play: faults of the API server, a forgotten history."""
    with over_http.simulator() as made:
        yield made


@pytest.fixture
def apiserver(_apiserver: real.Installed) -> real.ApiServerRig:
    """A real server alone, for what only it does; tests that use it are marked ``needs_cluster``."""
    return real.ApiServerRig(_apiserver)
