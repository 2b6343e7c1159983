"""The Redfish driver against sushy-tools' emulator, as its own process, and against controllers that misbehave."""

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from kcover_portal.machines.drivers import Machine, Power, Unreadable, redfish
from tests import servers, waiting
from tests.codes import code_of
from tests.portal.machines.controllers import PASSWORD, SYSTEMS, USERNAME, Controller

UUID = "27946b59-9e44-4fa7-8e91-f3527a1ef094"
OTHER = "3fc8b5f4-5e6b-4f3c-9f4a-2c0bb2f4d001"


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller(uuid=UUID)
    yield made
    made.stop()


def machine_at(url: str, **more: Any) -> Machine:
    return Machine(url=url, username=USERNAME, password=PASSWORD, verify=False, **more)


class Emulator(servers.Server):
    """Two systems behind one service, which asks for a password."""

    name = "emulator"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        bcrypt = importlib.import_module("bcrypt")
        passwords, config = self.folder / "htpasswd", self.folder / "emulator.conf"
        passwords.write_text(f"{USERNAME}:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n")
        systems = [{"uuid": uuid, "name": uuid[:4], "power_state": "On", "nics": []} for uuid in (UUID, OTHER)]
        config.write_text(
            f"SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\n"
            f"SUSHY_EMULATOR_LISTEN_PORT = {self.port}\nSUSHY_EMULATOR_STATE_DIR = {str(self.folder)!r}\n"
            f"SUSHY_EMULATOR_AUTH_FILE = {str(passwords)!r}\nSUSHY_EMULATOR_FAKE_SYSTEMS = {systems!r}\n"
        )
        return [sys.executable, "-m", "sushy_tools.emulator.main", "--config", str(config)]

    def ready(self) -> bool:
        try:
            requests.get(f"{self.url}/redfish/v1/", timeout=5)
        except requests.RequestException:
            return False
        return True


@pytest.fixture
def emulator() -> Iterator[str]:
    pytest.importorskip("sushy_tools", reason="sushy-tools is not installed: make venv")
    pytest.importorskip("bcrypt")
    with Emulator() as made:
        yield made.url


def until_power(machine: Machine, power: Power) -> None:
    waiting.until(lambda: redfish.look(machine).power is power, f"the machine to be {power}")


def test_a_real_service_is_switched_off_and_on(emulator: str) -> None:
    machine = machine_at(emulator, system=UUID)
    seen = redfish.look(machine)
    assert (seen.power, seen.uuid) == (Power.ON, UUID)
    assert redfish.switch(machine, seen, Power.OFF).taken
    until_power(machine, Power.OFF)
    assert redfish.look(machine_at(emulator, system=OTHER)).power is Power.ON
    assert redfish.switch(machine, redfish.look(machine), Power.ON).taken
    until_power(machine, Power.ON)


def test_a_real_service_refuses_a_wrong_password(emulator: str) -> None:
    with pytest.raises(Unreadable) as refused:
        redfish.look(Machine(url=emulator, username=USERNAME, password="wrong", system=UUID))
    assert (code_of(refused.value.reason.to_json()), refused.value.lasting) == ("host_answered", True)


def test_one_of_several_systems_must_be_named(emulator: str) -> None:
    with pytest.raises(Unreadable) as refused:
        redfish.look(machine_at(emulator))
    assert code_of(refused.value.reason.to_json()) == "redfish_systems"


def test_the_identity_is_read(controller: Controller) -> None:
    seen = redfish.look(machine_at(controller.url))
    assert (seen.serial, seen.maker, seen.model, seen.kinds) == ("SN1", "Acme", "G8", ("On", "ForceOff"))


@pytest.mark.parametrize("state", ["PoweringOff", None, 7, ["On"]])
def test_any_other_power_state_is_unknown(controller: Controller, state: Any) -> None:
    controller.power = state
    assert redfish.look(machine_at(controller.url)).power is Power.OTHER


@pytest.mark.parametrize(
    "link",
    [
        *("http://169.254.169.254/latest", "//evil.example/redfish/v1/Systems", "/redfish/v1/../../etc", "/latest"),
        *("@evil.example/redfish/v1/", "/redfish/v1/Systems\r\nX: y", "/redfish/v1/Systems?a", None, 7),
    ],
)
def test_a_link_to_anywhere_else_is_not_followed(controller: Controller, link: Any) -> None:
    for path, document in (
        ("/redfish/v1/", {"Systems": {"@odata.id": link}}),
        (SYSTEMS, {"Members": [{"@odata.id": link}]}),
        (f"{SYSTEMS}/1", {"PowerState": "On", "Actions": {"#ComputerSystem.Reset": {"target": link}}}),
    ):
        controller.documents = {path: document}
        with pytest.raises(Unreadable) as refused:
            redfish.look(machine_at(controller.url))
        assert refused.value.lasting


@pytest.mark.parametrize("document", [[], "text", {"Systems": 3}, {"Systems": {"@odata.id": SYSTEMS, "Members": 1}}])
def test_a_response_that_is_not_redfish_is_refused(controller: Controller, document: Any) -> None:
    controller.documents = {"/redfish/v1/": document, SYSTEMS: {"Members": 3}}
    with pytest.raises(Unreadable):
        redfish.look(machine_at(controller.url))


def test_an_unsupported_reset_type_is_not_requested(controller: Controller) -> None:
    controller.kinds = ["GracefulShutdown", "On"]
    machine = machine_at(controller.url)
    switched = redfish.switch(machine, redfish.look(machine), Power.OFF)
    assert (switched.taken, switched.unclear, switched.later) == (False, False, False)
    assert controller.asked == []


def test_the_metadata_service_is_no_controller() -> None:
    with pytest.raises(Unreadable) as refused:
        redfish.look(machine_at("http://169.254.169.254"))
    assert code_of(refused.value.reason.to_json()) == "address_blocked"


def test_the_password_is_in_no_text(controller: Controller) -> None:
    assert PASSWORD not in repr(machine_at(controller.url))
