"""The device of a fault: one form for every source, and what is the same device."""

import pytest

from kcover.faults import device
from kcover.faults.device import Device, Known, named
from kcover.sources import impacted, labels

A, B = "GPU-39891a06-be79-5aa5-8bf6-92a56c6403c9", "GPU-51a35b42-082a-5de9-a96c-4b15589f7db3"
INVENTORY = [Known(0, A, "0000:18:00"), Known(2, B, "0000:3a:00")]


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"gpu": "2", "device": "nvidia2"}, "gpu 2"),
        ({"GPU": "5"}, "gpu 5"),
        ({"device": "nvidia7"}, "gpu 7"),
        ({"gpu": "nvidia3"}, "gpu 3"),
        ({"gpu": "/dev/nvidia3"}, "gpu /dev/nvidia3"),
        ({"gpu_id": "GPU 4"}, "gpu 4"),
        ({"device": "gpu3"}, "gpu 3"),
        ({"gpuIndex": "3"}, "gpu 3"),
        ({"gpuid": "4"}, "gpu 4"),
        ({"minor_number": "4"}, "minor 4"),  # no index: drivers count them otherwise
        ({"bus_id": "00000000:18:00.0"}, "0000:18:00"),
        ({"uuid": "df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"}, "GPU-df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"),
        ({"gpu": B.upper().replace("GPU-", "gpu-")}, B),
        ({"gpu": "0", "pci_bus_id": "00000000:18:00.0", "UUID": A}, "0000:18:00"),
        ({"PCI_BUS_ID": "0000:AB:00.0"}, "0000:ab:00"),
        ({"gpu": "2", "GPU_I_ID": "3", "GPU_I_PROFILE": "2g.20gb"}, "gpu 2 mig 3"),
        ({"gpu": "2", "nvlink": "17"}, "gpu 2 link 17"),
        ({"nvswitch": "nvswitch3", "nvlink": "4"}, "nvswitch 3 link 4"),
        ({"device": "mlx5_0", "port": "1"}, "nic mlx5_0 port 1"),
        ({"device": "mlx5_0", "port": "2"}, "nic mlx5_0 port 2"),
        ({"interface": "eth2"}, "nic eth2"),
        ({"device": "sda1"}, "device sda1"),
        ({"device": "/dev/nvme0n1", "port": "9100"}, "device /dev/nvme0n1"),
        ({"UUID": "MIG-b4cc7d9e-1111-5de9-b6b0-d52fbfdea07b"}, "MIG-b4cc7d9e-1111-5de9-b6b0-d52fbfdea07b"),
        ({"UUID": "MIG-B4CC7D9E-1111", "gpu": "1"}, "gpu 1 MIG-b4cc7d9e-1111"),
        ({"exported_gpu": "6", "gpu": "1"}, "gpu 6"),
        ({"instance": "10.0.0.1:9400", "port": "9400", "link": "https://runbook/x"}, ""),
        ({"gpu": "", "UUID": "no uuid", "pci": "none"}, ""),
        *(({"gpu": value}, "") for value in ("N/A", "all", "Unknown", "none")),
    ],
)
def test_the_device_of_labels(given: dict[str, str], key: str) -> None:
    assert labels.device(given).key == key


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"alertname": "StorageError", "error_code": "45"}, None),
        ({"alertname": "GpuError", "error_code": "45", "gpu": "3"}, 45),
        ({"alertname": "GpuXid", "error_code": "45"}, 45),
        ({"alertname": "StorageError", "err_code": "45"}, 45),
    ],
)
def test_a_code_of_any_program_is_an_xid_only_of_a_gpu(given: dict[str, str], code: int | None) -> None:
    assert labels.xid(given) == code


@pytest.mark.parametrize(
    ("entities", "keys"),
    [
        ([("GPU", "3")], ["gpu 3"]),
        ([("GPU", "gpu3")], ["gpu 3"]),
        ([("NVSWITCH", "3")], ["nvswitch 3"]),
        ([("GPU", "1"), ("GPU", "6")], ["gpu 1", "gpu 6"]),
        ([("PCI", "0000:18:00"), ("GPU_UUID", A)], ["0000:18:00"]),
        ([("GPU", "0"), ("PCI", "0000:18:00.0"), ("GPU_UUID", A)], ["0000:18:00"]),
        (
            [("PCI", "0000:18:00"), ("GPU_UUID", A), ("PCI", "0000:3a:00"), ("GPU_UUID", B)],
            ["0000:18:00", "0000:3a:00"],
        ),
        ([("GPU", "1"), ("GPU", "2"), ("PCI", "0000:18:00")], ["gpu 1", "gpu 2", "0000:18:00"]),
        # A switch with the link that failed, and the GPU at its other end.
        ([("NVSWITCH", "0"), ("PCI", "0000:c4:00.0"), ("NVLINK", "17"), ("GPU", "3")], ["0000:c4:00 link 17"]),
        ([("NVSWITCH", "0000:c4:00.0")], ["0000:c4:00"]),
        # Each link is a device: the pass of one is not the pass of another.
        ([("NVSWITCH", "0"), ("NVLINK", "0"), ("NVLINK", "1")], ["nvswitch 0 link 0", "nvswitch 0 link 1"]),
        ([("GPU", "1"), ("GPU", "2"), ("NVLINK", "3")], ["gpu 1 link 3", "gpu 2 link 3"]),
        ([("GPU", "1"), ("GPU", "2"), ("NVLINK", "3"), ("NVLINK", "4")], ["gpu 1", "gpu 2"]),
        ([("NIC", "mlx5_2"), ("NICPORT", "1")], ["nic mlx5_2 port 1"]),
        ([("PCI", "0009:01:00"), ("GPU_UUID", A), ("NVLINK", "14"), ("REG0", "00")], ["0009:01:00 link 14"]),
        ([("CPU", "1")], ["cpu 1"]),
        ([("GPC", "1"), ("REG0", "2")], []),
        ([], []),
    ],
)
def test_the_devices_of_impacted_entities(entities: list[tuple[str, str]], keys: list[str]) -> None:
    assert [one.key for one in impacted.devices(entities)] == keys


LONG = "x" * 200


@pytest.mark.parametrize(
    "found",
    [
        [labels.device({"nic": LONG[:64], "gpu_i_id": LONG[:32], "gpu_instance_id": LONG[:31], "nvlink": LONG[:32]})],
        [labels.device({"UUID": f"GPU-{LONG[:64]}", "gpu_i_id": LONG[:32], "link": LONG[:32]})],
        [labels.device({"gpu": "1", "UUID": f"MIG-{LONG[:64]}"})],
        impacted.devices([(LONG[:96], LONG[:64])]),
        impacted.devices([("PCI", "0000:18:00"), *(("NVLINK", str(link)) for link in range(18))]),
    ],
)
def test_a_key_fits_into_its_column(found: list[Device]) -> None:
    assert found
    assert all(0 < len(one.key) <= 128 for one in found)


def test_two_long_names_stay_apart() -> None:
    first, second = (labels.device({"nic": LONG[:63] + end, "link": LONG[:31] + end}) for end in "ab")
    assert first.key != second.key
    assert len({labels.device({"gpu": "1", "link": LONG[:31] + end, "gpu_i_id": LONG[:32]}).key for end in "ab"}) == 2


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (named(unit="gpu 2"), "0000:3a:00"),
        (named(unit="gpu 2", part="mig 3"), "0000:3a:00 mig 3"),
        (named(uuid=B), "0000:3a:00"),
        (named(uuid=A, unit="gpu 2"), "0000:18:00"),  # a UUID outweighs a number
        (
            named(pci="0000:9a:00.0", unit="gpu 2"),
            "0000:9a:00",
        ),  # so does a slot, even an unknown one
        (named(unit="gpu 1"), "gpu 1"),
        (named(unit="nvswitch 2"), "nvswitch 2"),
        (Device(), ""),
    ],
)
def test_a_number_is_joined_to_the_inventory_where_one_gpu_fits(given: Device, key: str) -> None:
    assert device.joined(given, INVENTORY).key == key
    assert device.joined(given, []).key == given.key


def test_two_gpus_with_one_number_are_joined_to_neither() -> None:
    assert device.joined(named(unit="gpu 2"), [*INVENTORY, Known(2, "GPU-x", "0000:4e:00")]).key == "gpu 2"


@pytest.mark.parametrize(
    ("passed", "name", "is_covered"),
    [
        ((), "gpu 5", True),
        ((), "", True),
        (("gpu 5",), "gpu 5", True),
        (("gpu 5",), "gpu 5 link 3", True),
        (("gpu 5",), "gpu 50", False),
        (("gpu 5 link 3",), "gpu 5", False),
        (("gpu 3",), "nvswitch 3", False),
        (("gpu 3",), "", False),
        (("0000:3a:00", "gpu 2"), "gpu 2 mig 3", True),
    ],
)
def test_a_pass_covers_its_device_and_the_parts_of_it(passed: tuple[str, ...], name: str, is_covered: bool) -> None:
    assert device.covers(passed, (name,)) is is_covered
