"""Serial numbers of the machine, its board and its network adapters, from a folder like ``/sys``."""

import os

import pytest

from agents.probes.host import serials
from kcover.faults.fault import Inventory, Nic
from kcover.machines import part_serials


def resource(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + len(content).to_bytes(2, "little") + content


def vpd(serial: bytes, *, name: bytes = b"ConnectX-7 ") -> bytes:
    fields = b"PN" + bytes([4]) + b"MCX7" + b"SN" + bytes([len(serial)]) + serial + b"RV" + bytes([1]) + b"\x42"
    return resource(0x82, name) + resource(0x90, fields) + b"\x78" + b"\xff" * 16


@pytest.fixture
def sys(tmp_path):
    dmi = tmp_path / "class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "product_serial").write_text("SN-4711\n")
    (dmi / "board_serial").write_text("To be filled by O.E.M.\n")
    return tmp_path


def adapter(root, address: str, *, data: bytes = b"", kind: str = "infiniband", name: str = "", of_class="0x020700"):
    folder = root / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "class").write_text(of_class)
    if data:
        (folder / "vpd").write_bytes(data)
    if name:
        (folder / kind / name).mkdir(parents=True)
    return folder


def test_the_ports_of_an_adapter_are_one_part(sys):
    adapter(sys, "0000:4e:00.0", data=vpd(b"MT2150X1 "), name="mlx5_0")
    adapter(sys, "0000:4e:00.1", data=vpd(b"MT2150X1 "), name="mlx5_1")
    adapter(sys, "0000:5e:00.0", data=vpd(b"0A", name=b"X710"), kind="net", name="eno1", of_class="0x020000")
    adapter(sys, "0000:6e:00.0", data=vpd(b"None"), name="mlx5_9")
    adapter(sys, "0000:7e:00.0")
    adapter(sys, "0000:8e:00.0", data=vpd(b"GPU"), of_class="0x030200")
    os.symlink("..", adapter(sys, "0000:4e:01.0", data=vpd(b"virtual")) / "physfn")
    assert serials.read_parts(sys) == Inventory(
        machine_serial="SN-4711",
        nics=(
            Nic(serial="MT2150X1", name="mlx5_0,mlx5_1", pci="0000:4e:00.0", model="ConnectX-7"),
            Nic(serial="0A", name="eno1", pci="0000:5e:00.0", model="X710"),
        ),
    )


@pytest.mark.parametrize(
    "data", [b"", b"\x82", b"\x82\xff\xff", b"\xff" * 4096, b"\0" * 64, resource(0x90, b"SN\xff1")]
)
def test_damaged_vital_product_data_gives_no_wrong_serial_number(data):
    assert serials.vital_product_data(data) in {("", ""), ("", "1")}


def test_the_files_are_read_once(sys):
    gpus = [Inventory(driver="580"), Inventory(driver="590")]
    read = serials.WithSerials(lambda: gpus.pop(0), root=sys)
    assert read() == Inventory(driver="580", machine_serial="SN-4711")
    (sys / "class/dmi/id/product_serial").write_text("SN-1")
    assert read() == Inventory(driver="590", machine_serial="SN-4711")


@pytest.mark.parametrize(
    "text",
    ["", " ", "None", "N/A", "0123456789", "To be filled by O.E.M.", "Default string", "0000000", "XXXX", "....."],
)
def test_placeholders(text):
    assert part_serials.known(text) == ""


def test_a_serial_number_is_kept_as_it_is():
    assert part_serials.known(" 1652323-01 a ") == "1652323-01 a"
