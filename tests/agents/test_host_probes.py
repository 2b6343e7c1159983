"""Probes of everything but the GPUs: folders of small files, fake tools, a kubelet of our own."""

import http.server
import json
import shutil
import socket
import struct
import threading
from datetime import UTC, datetime, timedelta

import pytest

from agents import config, programs, store
from agents.gpu_count import GpuCount
from agents.probes import clock, hardware, infiniband, kubelet, metax, nvme, sel, storage
from kcover.fault import Gpu

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Looker:
    """Looks again and again, time passing in between."""

    def __init__(self, probe):
        self.probe, self.now = probe, START

    def look(self, after=60.0):
        self.now += timedelta(seconds=after)
        return self.probe.look(self.now).findings

    def bad(self, after=60.0):
        findings = self.look(after)
        return [(f.check.name, f.check.device, f.check.status, f.fault) for f in findings if f.check.status != "pass"]

    def all(self, after=60.0):
        return [(one.check.name, one.check.device, one.check.status) for one in self.look(after)]


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")


# --------------------------------------------------------------------------------------------------------- InfiniBand


@pytest.fixture
def ports(tmp_path):
    def write_port(adapter="mlx5_0", *, state="4: ACTIVE", phys="5: LinkUp", rate="400 Gb/sec (4X NDR)", **counters):
        folder = tmp_path / adapter / "ports" / "1"
        write(folder, state=state, phys_state=phys, rate=rate)
        write(folder / "counters", **{"link_downed": 0, "symbol_error": 0, "port_rcv_errors": 0, **counters})

    return write_port


def test_a_port_that_works(ports, tmp_path):
    ports()
    looker = Looker(infiniband.InfinibandProbe(root=tmp_path))
    assert looker.all() == [("ib_port", "mlx5_0/1", "pass"), ("ib_rate", "mlx5_0/1", "pass")]
    assert ("ib_errors", "mlx5_0/1", "pass") in looker.all()
    assert looker.look()[1].check.value == 400


def test_an_empty_cage_is_no_fault_unless_the_settings_name_it(ports, tmp_path):
    ports(state="1: DOWN", phys="3: Disabled")
    assert Looker(infiniband.InfinibandProbe(root=tmp_path)).all() == []
    looker = Looker(infiniband.InfinibandProbe(root=tmp_path, expected=("mlx5_0", "mlx5_9")))
    assert looker.bad() == [("ib_port", "mlx5_0/1", "warn", False), ("ib_port", "mlx5_9", "fail", True)]


def test_a_port_that_stays_down_is_lost_after_four_minutes(ports, tmp_path):
    ports()
    looker = Looker(infiniband.InfinibandProbe(root=tmp_path))
    looker.look()
    ports(state="1: DOWN", phys="2: Polling")
    assert [looker.bad() for _ in range(4)] == [[("ib_port", "mlx5_0/1", "warn", False)]] * 4
    assert looker.bad() == [("ib_port", "mlx5_0/1", "fail", True)]
    ports()
    assert looker.bad() == []


def test_an_adapter_that_vanishes_is_lost_after_four_minutes(ports, tmp_path):
    ports()
    looker = Looker(infiniband.InfinibandProbe(root=tmp_path))
    looker.look()
    shutil.rmtree(tmp_path / "mlx5_0")
    assert [looker.bad() for _ in range(4)] == [[("ib_port", "mlx5_0/1", "warn", False)]] * 4
    assert looker.bad() == [("ib_port", "mlx5_0/1", "fail", True)]
    ports()
    assert looker.bad() == []


def test_a_port_that_a_pod_was_given_for_itself_is_no_fault(ports, tmp_path):
    """RDMA devices in network namespaces: those of other namespaces are not shown."""
    shown, bus = tmp_path / "shown", tmp_path / "bus"
    probe = infiniband.InfinibandProbe(root=shown)
    looker = Looker(probe)
    for adapter in ("mlx5_0", "mlx5_1"):
        (bus / adapter).mkdir(parents=True)
        ports(f"shown/{adapter}")
        (shown / adapter / "device").symlink_to(bus / adapter)
    (bus / "mlx5_1" / "physfn").mkdir()  # a virtual function
    looker.look()
    shutil.rmtree(shown)
    assert [looker.bad() for _ in range(6)] == [[("ib_port", "mlx5_0/1", "warn", False)]] * 6
    shutil.rmtree(bus)
    assert looker.bad() == [("ib_port", "mlx5_0/1", "fail", True)]


def test_a_named_adapter_that_comes_back_passes(ports, tmp_path):
    looker = Looker(infiniband.InfinibandProbe(root=tmp_path, expected=("mlx5_0",)))
    assert looker.bad() == [("ib_port", "mlx5_0", "fail", True)]
    ports()
    assert ("ib_port", "mlx5_0", "pass") in looker.all()


def test_a_port_that_flaps_is_found_though_it_is_up_at_each_look(ports, tmp_path):
    ports()
    looker = Looker(infiniband.InfinibandProbe(root=tmp_path))
    looker.look()
    ports(link_downed=1)
    assert looker.bad() == []
    ports(link_downed=2)
    assert looker.bad() == [("ib_port", "mlx5_0/1", "fail", True)]
    assert looker.bad(after=301) == []


def test_errors_and_a_slower_link_are_warnings(ports, tmp_path):
    ports(symbol_error=1000)
    looker = Looker(infiniband.InfinibandProbe(root=tmp_path))
    assert looker.bad() == []  # from before
    ports(symbol_error=1007, rate="200 Gb/sec (4X HDR)")
    assert looker.bad() == [("ib_rate", "mlx5_0/1", "warn", False), ("ib_errors", "mlx5_0/1", "warn", False)]
    ports(symbol_error=1007)
    assert looker.bad() == []


def test_a_machine_without_adapters(tmp_path):
    assert Looker(infiniband.InfinibandProbe(root=tmp_path / "none")).all() == []


# ----------------------------------------------------------------------------------------------- PCIe and host memory


@pytest.fixture
def bus(tmp_path):
    def write_device(address="0000:4e:00.0", *, kind="0x030200", vendor="0x10de", **errors):
        folder = tmp_path / "bus/pci/devices" / address
        write(folder, **{"class": kind, "vendor": vendor})
        for name, count in {"fatal": 0, "nonfatal": 0, "correctable": 0, **errors}.items():
            word = {"fatal": "FATAL", "nonfatal": "NONFATAL", "correctable": "COR"}[name]
            write(folder, **{f"aer_dev_{name}": f"RxErr 0\nBadTLP {count}\nTOTAL_ERR_{word} {count}"})

    return write_device


def test_pcie_errors_count_when_they_grow(bus, tmp_path):
    bus(fatal=3)
    bus("0000:10:00.0", kind="0x020700", vendor="0x15b3")
    bus("0000:00:1f.0", kind="0x060100", fatal=9)  # a bridge is nobody's business
    looker = Looker(hardware.HardwareProbe(root=tmp_path))
    assert looker.all() == []
    assert looker.all() == [("pcie_errors", "0000:10:00.0", "pass"), ("pcie_errors", "0000:4e:00.0", "pass")]
    bus(fatal=4)
    (one,) = [one for one in looker.look() if one.check.status != "pass"]
    assert (one.check.status, one.fault, one.pci, one.check.message) == (
        "fail",
        True,
        "0000:4e:00",
        "1 fatal since the last look",
    )
    bus(fatal=4, nonfatal=2)
    assert looker.bad() == [("pcie_errors", "0000:4e:00.0", "warn", False)]
    bus(fatal=4, nonfatal=2, correctable=90)
    assert looker.bad() == []
    bus(fatal=4, nonfatal=2, correctable=300)
    assert looker.bad() == [("pcie_errors", "0000:4e:00.0", "warn", False)]


def test_how_many_gpus_the_bus_shows(bus, tmp_path):
    bus()
    bus("0000:5e:00.0")
    bus("0000:03:00.0", kind="0x030000", vendor="0x1a03")  # the board's own display
    bus("0000:5f:00.0", kind="0x068000")  # an NVSwitch
    bus("0000:5e:00.4")
    (tmp_path / "bus/pci/devices/0000:5e:00.4/physfn").mkdir()  # a part of one that was split for virtual machines
    assert hardware.gpus_on_the_bus(tmp_path) == 2
    assert hardware.gpus_on_the_bus(tmp_path / "none") == 0


def test_machine_checks_of_the_memory(tmp_path):
    controller = tmp_path / "devices/system/edac/mc/mc0"
    write(controller, ue_count=0, ce_count=5)
    looker = Looker(hardware.HardwareProbe(root=tmp_path))
    assert looker.all() == []
    write(controller, ue_count=0, ce_count=50)
    assert looker.all() == [("host_memory", "mc0", "pass")]
    write(controller, ue_count=0, ce_count=500)
    assert looker.bad() == [("host_memory", "mc0", "warn", False)]
    write(controller, ue_count=1, ce_count=500)
    assert looker.bad() == [("host_memory", "mc0", "fail", True)]


# -------------------------------------------------------------------------------------------------------------- clock

TRACKING = """Reference ID    : 771CB7B8 (119.28.183.184)
Stratum         : 3
System time     : 0.0{offset} seconds {way} of NTP time
Last offset     : -0.000130641 seconds
Leap status     : {leap}
"""


def tracking(offset, *, way="fast", leap="Normal"):
    return TRACKING.format(offset=offset, way=way, leap=leap)


@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        (tracking("05333243"), "pass", 5.333),
        (tracking("10000000"), "pass", 10.0),
        (tracking("10100000", way="slow"), "warn", 10.1),
    ],
)
def test_the_clock_by_chrony(tools, text, status, value):
    tools.say("chronyc", text)
    (found,) = Looker(clock.ClockProbe(kernel=lambda: clock.Kept(True))).look()
    assert (found.check.status, found.check.value, found.check.unit, found.fault) == (status, value, "ms", False)


@pytest.mark.parametrize("kept", [True, False])
def test_the_clock_by_the_kernel_where_chrony_cannot_say(tools, kept):
    looker = Looker(clock.ClockProbe(kernel=lambda: clock.Kept(not kept)))
    assert looker.all() == [("clock", "", "pass" if kept else "warn")]
    tools.say("chronyc", "506 Cannot talk to daemon", status=1)
    assert looker.all() == [("clock", "", "pass" if kept else "warn")]
    tools.say("chronyc", tracking("00000000", leap="Not synchronised"))
    assert looker.all() == [("clock", "", "pass" if kept else "warn")]


@pytest.mark.parametrize(
    ("offset", "status", "kept"),
    [
        (-12_300_000, clock.STA_PLL | clock.STA_NANO, clock.Kept(False, 12.3)),
        (4_500, clock.STA_PLL, clock.Kept(False, 4.5)),  # microseconds
        (4_500, 0, clock.Kept(False)),  # chrony's: nobody set it
        (4_500, clock.STA_PLL | clock.STA_UNSYNC, clock.Kept(True)),
    ],
)
def test_what_the_kernel_says_of_its_clock(offset, status, kept):
    assert clock.read_timex(struct.pack("@Illlli", 0, offset, 1, 2, 3, status) + bytes(64)) == kept


@pytest.mark.parametrize(("offset", "status"), [(3.21, "pass"), (30.0, "warn")])
def test_the_offset_by_the_kernel_where_there_is_no_chrony(tools, offset, status):
    (found,) = Looker(clock.ClockProbe(kernel=lambda: clock.Kept(False, offset))).look()
    assert (found.check.status, found.check.value, found.check.unit, found.fault) == (status, offset, "ms", False)


def test_the_kernel_here_says_something():
    assert clock.ask_kernel().unsynchronized in (True, False)


# ------------------------------------------------------------------------------------------------------------ storage


class Proc:
    """A /proc of our own, whose first process has the node's mounts."""

    def __init__(self, folder, *, pids=storage.HOSTS_PIDS):
        self.folder = folder
        (folder / "self/ns").mkdir(parents=True)
        (folder / "self/ns/pid").symlink_to(pids)
        (folder / "1").mkdir()
        (folder / "1/root").symlink_to("/")
        self.mounts()

    def mounts(self, *lines, of="1"):
        (self.folder / of / "mounts").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path / "proc")


def storage_looker(proc, **settings):
    return Looker(storage.StorageProbe(**{"folders": (), **settings}, proc=proc.folder))


def test_room_on_a_disk(tmp_path, proc, monkeypatch):
    looker = storage_looker(proc, folders=(tmp_path, tmp_path / "none"))
    shares = {"pass": (20, 100), "warn": (8, 100), "fail": (2, 100)}
    for status, (free, total) in shares.items():
        for blocks, inodes in (((free, total), (99, 100)), ((99, 100), (free, total)), ((free, total), (0, 0))):
            monkeypatch.setattr(storage, "_shares", lambda _, both=(blocks, inodes): both)
            assert looker.all() == [("disk", str(tmp_path), status)]


def test_a_mount_must_be_there_and_answer(tmp_path, proc):
    data = tmp_path / "my data"
    data.mkdir()
    escaped = str(data).replace(" ", "\\040")
    proc.mounts(f"server:/x {escaped} nfs4 rw,hard 0 0")
    looker = storage_looker(proc, mounts=(str(data), "/scratch"))
    assert looker.all() == [("mount", "/scratch", "fail"), ("mount", str(data), "pass")]
    data.rmdir()
    assert looker.bad() == [("mount", "/scratch", "fail", True), ("mount", str(data), "fail", True)]


def test_the_nodes_mounts_are_seen_out_of_a_container(tmp_path, proc):
    """Its own table and its own root have none of them."""
    node = tmp_path / "node"
    (node / "data").mkdir(parents=True)
    (proc.folder / "1/root").unlink()
    (proc.folder / "1/root").symlink_to(node)
    proc.mounts("/dev/sda1 / ext4 rw 0 0", "server:/x /data nfs4 rw 0 0")
    proc.mounts("overlay / overlay rw 0 0", of="self")
    looker = storage_looker(proc, mounts=("/data", "/gone"))
    assert looker.all() == [
        ("mount", "/gone", "fail"),
        ("mount", "/data", "pass"),
        ("disk_writable", "/", "pass"),
    ]


def test_the_mounts_that_must_be_there_are_asked_before_those_of_pods(tmp_path, proc, monkeypatch):
    monkeypatch.setattr(storage, "MAX_ASKED", 2)
    proc.mounts(*(f"server:/{point} {point} nfs4 rw 0 0" for point in ("/pod-1", "/pod-2", tmp_path)))
    assert ("mount", str(tmp_path), "pass") in storage_looker(proc, mounts=(str(tmp_path),)).all()


@pytest.mark.parametrize("why", ["another PID namespace", "the first process is not to be looked at"])
def test_a_mount_that_cannot_be_seen_is_no_fault(tmp_path, why):
    proc = Proc(tmp_path / "proc", pids="pid:[4026532999]" if "namespace" in why else storage.HOSTS_PIDS)
    proc.mounts(f"server:/x {tmp_path} nfs4 rw 0 0", of="self")
    if "looked" in why:
        (proc.folder / "1/root").unlink()
    looker = storage_looker(proc, mounts=("/scratch",))
    assert [(f.check.device, f.check.status, f.fault) for f in looker.look()] == [
        ("/scratch", "skipped", False),
        (str(tmp_path), "pass", False),
    ]
    assert looker.look()[0].check.message.startswith("only the agent's own mounts can be seen: ")


def test_a_mount_that_hangs_is_found_by_a_child(proc, monkeypatch):
    proc.mounts("server:/x /data nfs4 rw 0 0")
    monkeypatch.setattr(storage, "STAT_TIMEOUT", 0.3)
    monkeypatch.setattr(storage, "_STAT", "import time; time.sleep(60)")
    (found,) = storage_looker(proc, mounts=("/data",)).look()
    assert (found.check.status, found.fault, found.check.message) == ("fail", True, "does not answer within 0 s")
    (found,) = storage_looker(proc).look()  # nobody said that it must be there
    assert (found.check.status, found.fault, found.check.message) == ("warn", False, "does not answer within 0 s")


def test_a_mount_that_hung_and_is_no_longer_there_is_no_trouble_any_more(proc, monkeypatch):
    proc.mounts("server:/x /data nfs4 rw 0 0", "/dev/sda1 /spare ext4 rw 0 0")
    monkeypatch.setattr(storage, "_STAT", "raise SystemExit('Stale file handle')")
    looker = storage_looker(proc)
    assert looker.bad() == [("mount", "/data", "warn", False)]
    proc.mounts("server:/x /data nfs4 rw 0 0", "/dev/sda1 /spare ext4 ro 0 0")
    assert looker.bad() == [("mount", "/data", "warn", False), ("disk_writable", "/spare", "fail", True)]
    proc.mounts("/dev/sdb1 /spare ext4 ro 0 0")  # another disk, mounted so
    assert looker.all() == [("mount", "/data", "pass"), ("disk_writable", "/spare", "pass")]
    assert looker.all() == []


def test_a_mount_that_is_unmounted_while_it_is_asked_is_no_trouble(proc, monkeypatch):
    proc.mounts("server:/x /gone nfs4 rw 0 0")
    program = f"open({str(proc.folder / '1/mounts')!r}, 'w').close(); raise SystemExit('No such file')"
    monkeypatch.setattr(storage, "_STAT", program)
    assert storage_looker(proc).all() == []


def test_what_the_kubelet_mounts_for_pods_is_not_looked_at(proc, monkeypatch):
    volume = "/pods/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f/volumes/kubernetes.io~nfs/data"
    monkeypatch.setattr(storage, "_STAT", "raise SystemExit('No such file')")
    looker = storage_looker(proc)
    for kind, mode in (("nfs4", "rw"), ("ext4", "rw"), ("ext4", "ro")):
        folders = (f"/var/lib/kubelet{volume}", f"/srv{volume}", "/var/lib/kubelet/plugins/x/globalmount")
        proc.mounts(*(f"x {folder} {kind} {mode} 0 0" for folder in folders))
        assert looker.all() == []


@pytest.mark.parametrize("name", ["数据", "two words", "back\\slash", "é\tb", "wide\u3000space"])
def test_a_mount_of_any_name_answers(tmp_path, proc, name):
    data = tmp_path / name
    data.mkdir()
    escaped = str(data).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    proc.mounts(f"server:/x {escaped} nfs4 rw 0 0")
    for settings in ({}, {"mounts": (str(data),)}):
        assert storage_looker(proc, **settings).all() == [("mount", str(data), "pass")]


def test_one_look_waits_for_few_mounts_that_nobody_named(proc, monkeypatch):
    monkeypatch.setattr(storage, "STAT_TIMEOUT", 0.1)
    monkeypatch.setattr(storage, "MAX_WAITED", 2)
    monkeypatch.setattr(storage, "_STAT", "import time; time.sleep(60)")
    proc.mounts(*(f"server:/x /data-{number} nfs4 rw 0 0" for number in range(5)))
    hanging = []
    monkeypatch.setattr(programs, "_kill", hanging.append)
    looker = storage_looker(proc)
    try:
        assert [len(looker.look()) for _ in range(4)] == [2, 4, 5, 5]  # who hangs already is not waited for
    finally:
        for child in hanging:
            with child:
                child.kill()


def test_a_child_that_cannot_be_killed_is_not_joined_by_another(proc, monkeypatch):
    """As many as systemd lets the agent have would be there after a day."""
    proc.mounts("server:/x /data nfs4 rw 0 0")
    monkeypatch.setattr(storage, "STAT_TIMEOUT", 0.1)
    monkeypatch.setattr(storage, "_STAT", "import time; time.sleep(60)")
    hanging = []
    monkeypatch.setattr(programs, "_kill", hanging.append)  # a child in the kernel's hands ignores signals
    looker = storage_looker(proc)
    for _ in range(3):
        (found,) = looker.look()
        assert found.check.status == "warn"
    (child,) = hanging
    with child:
        child.kill()
    monkeypatch.setattr(storage, "STAT_TIMEOUT", 10)
    monkeypatch.setattr(storage, "_STAT", "")
    assert looker.look()[0].check.status == "pass"


def test_a_disk_that_turns_read_only(proc):
    proc.mounts("/dev/sda1 / ext4 rw,relatime 0 0", "/dev/sr0 /cd iso9660 ro 0 0", "/dev/sdb1 /ro xfs ro 0 0")
    looker = storage_looker(proc)
    assert looker.all() == [("disk_writable", "/", "pass")]
    proc.mounts("/dev/sda1 / ext4 ro,relatime 0 0")
    assert looker.bad() == [("disk_writable", "/", "fail", True)]


# ------------------------------------------------------------------------------------------------------------ kubelet


@pytest.fixture
def healthz():
    class Handler(http.server.BaseHTTPRequestHandler):
        status = 200

        def do_GET(self):
            self.send_response(Handler.status)
            self.end_headers()
            self.wfile.write(b"ok" if Handler.status == 200 else b"[-]syncloop failed")

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield Handler, server.server_address
    server.shutdown()
    server.server_close()
    thread.join()


def test_kubelet_and_runtime(healthz, tmp_path):
    handler, address = healthz
    runtime = tmp_path / "containerd.sock"
    probe = kubelet.KubeletProbe(address=address, folder=tmp_path, runtimes=(runtime, tmp_path / "crio.sock"))
    looker = Looker(probe)
    assert looker.all() == []  # no kubelet here
    write(tmp_path, **{"config.yaml": ""})
    assert looker.all() == [("kubelet", "", "pass")]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(runtime))
        listener.listen()
        assert looker.all() == [("kubelet", "", "pass"), ("container_runtime", "containerd", "pass")]
    assert looker.bad() == [("container_runtime", "containerd", "fail", False)]
    handler.status = 500
    assert looker.look()[0].check.message == "500 [-]syncloop failed"


def test_a_kubelet_that_is_gone(tmp_path):
    write(tmp_path, **{"config.yaml": ""})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    (found,) = Looker(kubelet.KubeletProbe(address=address, folder=tmp_path, runtimes=())).look()
    assert (found.check.status, found.fault) == ("fail", False)
    assert "refused" in found.check.message


# -------------------------------------------------------------------------------------------------------------- MetaX

LIST = """mx-smi  version: 2.2.9
GPU#0    MXC500      0000:08:00.0   {first} (UUID: GPU-e702f06b-bbd6-bc06-5196-90a5554a24ba)
GPU#1    MXC500      0000:3c:00.0   Available (UUID: GPU-0e715b45-bcef-1500-e2db-752724095700)
"""
FIRST, SECOND = "GPU-e702f06b-bbd6-bc06-5196-90a5554a24ba", "GPU-0e715b45-bcef-1500-e2db-752724095700"
TEMPERATURE = """mx-smi  version: 2.2.9
GPU#0  MXC500  0000:08:00.0
    Chip Temperature
        hotspot(sensor0)                          :  39.00 C
        hotspot(sensor1)                          :  {hot} C
    Board Temperature
        air-inlet                                 :  95.75 C
GPU#1  MXC500  0000:3c:00.0
    Chip Temperature
        hotspot(sensor4)                          :  39.25 C
End of Log
"""
ECC = """GPU#0  MXC500  0000:08:00.0
    ECC Errors
        SRAM Correctable                          : 900
    Retired Pages
        Double Bit ECC                            : {count}
GPU#1  MXC500  0000:3c:00.0
    Retired Pages
        Double Bit ECC                            : 0
"""
HCA = """hca_id: mlx5_0
\ttransport:                      InfiniBand (0)
\t\tport:   1
\t\t\tstate:                  {state}
"""


class MetaXNode:
    def __init__(self, tools, *, disk=None, given=None, **limits):
        self.tools = tools
        limits = config.MetaX(**{"hca_ids": ("mlx5_0",), **limits})
        self.looker = Looker(metax.MetaXProbe(limits, expected=GpuCount(disk or store.Memory(), given=given)))
        self.set()

    def set(self, *, first="Available", hot="84.99", ecc=64, offset="00100000", state="PORT_ACTIVE (4)", listed=2):
        folder = self.tools.folder.parent
        lines = LIST.format(first=first).splitlines(keepends=True)[: 1 + listed]
        texts = {"L": "".join(lines), "t": TEMPERATURE.format(hot=hot), "e": ECC.format(count=ecc)}
        for name, text in texts.items():
            (folder / name).write_text(text)
        cases = f"-L) cat {folder}/L;; --show-temperature) cat {folder}/t;; --count-ecc) cat {folder}/e;;"
        self.tools.add("mx-smi", f"case $1 in {cases} esac")
        self.tools.say("chronyc", tracking(offset))
        self.tools.say("ibv_devinfo", HCA.format(state=state))

    def tomorrow(self):
        return self.looker.bad(after=86_400)


def test_a_healthy_metax_node_is_checked_at_the_start_and_then_once_a_day(tools):
    node = MetaXNode(tools)
    assert {status for _, _, status in node.looker.all()} == {"pass"}
    node.set(hot="85.00")
    assert {status for _, _, status in node.looker.all(after=60)} == {"pass"}  # nobody looks yet
    assert node.tomorrow() == [("metax_temperature", FIRST, "fail", True)]
    node.set()
    for _ in range(3):  # told again, or it would be too old to count; as a fault it was told
        assert node.looker.bad(after=600) == [("metax_temperature", FIRST, "fail", False)]
    assert {name for name, _, _ in node.looker.all(after=86_400)} == {
        *("metax_gpus", "metax_temperature", "metax_clock", "metax_ecc", "metax_hca"),
    }


@pytest.mark.parametrize(
    ("state", "name", "device"),
    [
        ({"first": "Unavailable"}, "metax_gpus", ""),
        ({"hot": "85.00"}, "metax_temperature", FIRST),
        ({"ecc": 65}, "metax_ecc", FIRST),
        ({"offset": "10100000"}, "metax_clock", ""),
        ({"state": "PORT_DOWN (1)"}, "metax_hca", "mlx5_0"),
    ],
)
def test_kcovers_limits(tools, state, name, device):
    node = MetaXNode(tools)
    node.looker.look()
    node.set(**state)
    assert node.tomorrow() == [(name, device, "fail", True)]


def test_a_metax_gpu_that_is_listed_no_longer_is_missed_after_a_restart_too(tools):
    disk = store.Memory()
    assert MetaXNode(tools, disk=disk).looker.bad() == []
    node = MetaXNode(tools, disk=disk)
    node.set(listed=1)
    (count,) = [one.check for one in node.looker.look() if one.check.name == "metax_gpus"]
    assert (count.status, count.value) == ("fail", 1)
    assert count.message.startswith("1 of 2 GPUs are available; if fewer are meant to be there, set KCOVER_AGENT_GPUS")
    told = MetaXNode(tools, disk=disk, given=1)
    told.set(listed=1)
    assert told.looker.bad() == []


def test_an_adapter_that_is_missing_and_none_that_must_be_there(tools):
    assert MetaXNode(tools, hca_ids=("mlx5_7",)).looker.bad() == [("metax_hca", "mlx5_7", "fail", True)]
    assert MetaXNode(tools, hca_ids=()).looker.bad() == []


def test_inv_42_a_tool_that_is_missing_or_breaks_is_no_broken_node(tools):
    looker = Looker(metax.MetaXProbe(config.MetaX(), expected=int))
    assert looker.bad() == [("metax_gpus", "", "skipped", False)]
    node = MetaXNode(tools)
    (tools.folder / "chronyc").unlink()
    tools.say("ibv_devinfo", "no permission", status=1)
    tools.add("mx-smi", f"[ $1 = -L ] && cat {tools.folder.parent}/L || exit 3")
    assert node.looker.bad() == [
        ("metax_temperature", "", "error", False),
        ("metax_clock", "", "skipped", False),
        ("metax_ecc", "", "error", False),
        ("metax_hca", "", "error", False),
    ]


@pytest.mark.parametrize(("hour", "days"), [(9, 0), (11, 1), (10, 1)])
def test_the_next_check_is_at_the_time_of_day(hour, days):
    now = START.replace(hour=hour)
    assert metax.next_time(now, config.MetaX()) == START.replace(hour=10) + timedelta(days=days)


def test_the_inventory_of_a_metax_node(tools):
    MetaXNode(tools)
    assert metax.inventory().gpus == (
        Gpu(index=0, uuid=FIRST, pci="0000:08:00", model="MXC500"),
        Gpu(index=1, uuid=SECOND, pci="0000:3c:00", model="MXC500"),
    )
    (tools.folder / "mx-smi").unlink()
    assert metax.inventory().gpus == ()


# --------------------------------------------------------------------------------------------------------------- NVMe


@pytest.fixture
def disks(tmp_path):
    for name in ("nvme0", "nvme1", "nvme-subsys0"):
        (tmp_path / "class" / name).mkdir(parents=True)
    return Looker(nvme.NvmeProbe(root=tmp_path / "class"))


@pytest.mark.parametrize(
    ("warning", "status", "words"),
    [
        (0, "pass", ""),
        (2, "warn", "too hot or too cold"),
        (9, "fail", "spare blocks run out; read-only"),
        ({"value": 4, "nvm_subsystem_reliability": 1}, "fail", "no longer reliable"),
        (64, "fail", "critical warning 0x40"),
    ],
)
def test_a_disks_own_warning(tools, disks, warning, status, words):
    tools.say("nvme", json.dumps({"critical_warning": warning, "temperature": 308, "percent_used": 7}))
    found = [one.check for one in disks.look()]
    assert [(one.device, one.status, one.value, one.message) for one in found] == [
        (name, status, 7, words) for name in ("nvme0", "nvme1")
    ]


def test_inv_42_a_disk_that_cannot_be_asked_is_no_bad_disk(tools, disks, tmp_path):
    (missing,) = disks.look()
    assert (missing.check.status, missing.check.message) == ("skipped", "nvme is not on this node: install nvme-cli")
    good = json.dumps({"critical_warning": 0})
    tools.add("nvme", f"[ \"$1 $2 $3 $4\" = 'smart-log /dev/nvme1 -o json' ] && echo '{good}' || exit 2")
    assert disks.all() == [("nvme", "nvme0", "error"), ("nvme", "nvme1", "pass")]
    for nonsense in ("[]", "{}", "no JSON", '{"critical_warning": "hot"}'):
        tools.say("nvme", nonsense)
        assert [status for _, _, status in disks.all()] == ["error", "error"]
    assert Looker(nvme.NvmeProbe(root=tmp_path / "none")).look() == ()


# --------------------------------------------------------------------------------------------------------------- IPMI

SEL = """   1 | 10/02/2026 | 11:00:00 | Drive Slot / Bay #0x52 | Drive Present | Asserted
   2 | 10/02/2026 | 11:00:02 | Critical Interrupt #0x17 | Bus Fatal Error | Asserted
   3 | 10/02/2026 | 11:00:09 | Critical Interrupt #0x17 | Bus Fatal Error | Deasserted
"""


@pytest.fixture
def controller(tmp_path):
    (tmp_path / "ipmi0").touch()
    return Looker(sel.SelProbe(devices=(tmp_path / "none", tmp_path / "ipmi0")))


def test_a_new_critical_interrupt_warns_once_and_an_old_one_is_history(tools, controller):
    tools.say("ipmitool", SEL)
    assert controller.bad() == []
    tools.say(
        "ipmitool", SEL + "   4 | 11/21/2026 | 08:01:02 | Critical Interrupt #0x17 | Bus Fatal Error | Asserted\n"
    )
    (found,) = controller.look()
    assert (found.check.status, found.check.value, found.fault) == ("warn", 1, False)
    assert found.check.message == "4 11/21/2026 08:01:02 Critical Interrupt #0x17 Bus Fatal Error"
    assert controller.bad() == []
    tools.say("ipmitool", "SEL has no entries")  # somebody cleared it
    assert controller.bad() == []


def test_inv_42_a_controller_that_cannot_be_asked_is_no_bad_node(tools, controller, tmp_path):
    assert controller.bad() == [("sel", "", "skipped", False)]
    tools.say("ipmitool", "Could not open device at /dev/ipmi0", status=1)
    assert controller.bad() == [("sel", "", "error", False)]
    tools.add("ipmitool", f"[ \"$*\" = 'sel list last 100' ] && echo '{SEL}'")
    assert controller.bad() == []
    assert Looker(sel.SelProbe(devices=(tmp_path / "none",))).look() == ()
