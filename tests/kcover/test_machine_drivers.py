"""Which controller a node has, and whether it is that machine's."""

from typing import Any

import pytest

from kcover.machines import machine_drivers
from kcover.machines.machine_drivers import NoAddress, address_of, same_machine

UUID, SWAPPED = "00112233-4455-6677-8899-aabbccddeeff", "33221100-5544-7766-8899-AABBCCDDEEFF"


@pytest.mark.parametrize(
    ("url", "settings", "bmc", "address"),
    [
        ("https://{node}-bmc.example/", {}, "", "https://gpu-1-bmc.example"),
        ("https://{node}-bmc.example", {"table": {"gpu-1": "https://one.example/"}}, "", "https://one.example"),
        ("https://{bmc}", {"hosts": ["10.8.0.0/16"]}, "10.8.3.4", "https://10.8.3.4"),
        ("https://{bmc}", {"hosts": ["fd00:8::/64"]}, "fd00:8::4", "https://[fd00:8::4]"),
        ("ipmi://{bmc}:624", {"hosts": ["fd00:8::/64"]}, "fd00:8::4", "ipmi://[fd00:8::4]:624"),
        ("https://{bmc}", {"hosts": [".bmc.example"]}, "r1.bmc.example", "https://r1.bmc.example"),
        ("https://{bmc}", {"hosts": ["R1.bmc.example"]}, "r1.bmc.example", "https://r1.bmc.example"),
    ],
)
def test_the_address_of_a_controller(url: str, settings: dict[str, Any], bmc: str, address: str) -> None:
    assert address_of(url, settings, node="gpu-1", bmc=bmc) == address


@pytest.mark.parametrize(
    ("url", "settings", "bmc", "code"),
    [
        ("", {"table": {"gpu-2": "https://two.example"}}, "", "driver_node_unlisted"),
        ("https://{bmc}", {"hosts": ["10.8.0.0/16"]}, "", "driver_annotation_missing"),
        ("https://{bmc}", {"hosts": ["10.8.0.0/16"]}, "10.9.0.1", "driver_host_refused"),
        ("https://{bmc}", {"hosts": [".bmc.example"]}, "evil.example", "driver_host_refused"),
        ("https://{bmc}", {"hosts": [".bmc.example"]}, "evil.example/.bmc.example", "driver_host_refused"),
        ("https://{bmc}", {"hosts": [".bmc.example"]}, "u:p@x.bmc.example", "driver_host_refused"),
        ("https://{bmc}", {"hosts": ["bmc.example"]}, "x.bmc.example", "driver_host_refused"),
    ],
)
def test_no_address(url: str, settings: dict[str, Any], bmc: str, code: str) -> None:
    with pytest.raises(NoAddress) as refused:
        address_of(url, settings, node="gpu-1", bmc=bmc)
    assert refused.value.reason.code == code


@pytest.mark.parametrize("node", ["evil.example/x", "u:p@evil.example", "evil.example:1", "a b", "", "[::1]", "Evil"])
def test_an_invalid_node_name_gives_no_address(node: str) -> None:
    for url in ("https://{node}-bmc.example", "https://bmc.example"):
        with pytest.raises(NoAddress) as refused:
            address_of(url, {}, node=node, bmc="")
        assert refused.value.reason.code == "driver_node_invalid"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (UUID, UUID.upper(), True),
        (UUID, SWAPPED, True),
        (SWAPPED, UUID, True),
        ("ffeeddcc-bbaa-9988-7766-554433221100", UUID, True),
        ("ffeeddcc-bbaa-9988-7766-554433221100", SWAPPED, True),
        (UUID, "00112233-4455-6677-8899-aabbccddee00", False),
        ("", UUID, None),
        (UUID, "not a uuid", None),
        ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000", None),
        ("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "ffffffff-ffff-ffff-ffff-ffffffffffff", None),
    ],
)
def test_uuids_of_one_machine_are_equal(one: str, other: str, same: bool | None) -> None:
    assert same_machine(one, other) is same


def test_settings_of_the_command_line_are_canonical() -> None:
    given = {"timeout": "5", "check_uuid": "false", "pools": "a, b", "table": "# x\ngpu-1 https://one.example\n"}
    assert machine_drivers.read("redfish", given, url="") == {
        "timeout": 5,
        "check_uuid": False,
        "pools": ["a", "b"],
        "table": {"gpu-1": "https://one.example"},
    }
    assert machine_drivers.read("redfish", {"timeout": None}, url="https://{node}.example") == {}


@pytest.mark.parametrize("stated", ["", "/", "?x", " ", "#", "%2f"])
def test_a_provider_id_is_told_from_no_other_by_what_stands_around_the_instance(stated: str) -> None:
    victims = "aws:///eu-1a/i-0victim"
    for one in (f"{victims}{stated}", f"{victims}{stated}".upper(), f"i-0victim{stated}"):
        assert machine_drivers.same_instance(one, victims)
        assert machine_drivers.same_instance(victims, one)
    assert not machine_drivers.same_instance(f"aws:///eu-1a/i-1{stated}", victims)
    assert not machine_drivers.same_instance(stated, victims)
