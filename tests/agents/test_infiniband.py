"""The probe of InfiniBand and RoCE ports, over a folder of small files."""

import shutil

import pytest

from agents.probes.host import infiniband
from tests.agents.probe_run import ProbeRun, write


@pytest.fixture
def ports(tmp_path):
    def write_port(adapter="mlx5_0", *, state="4: ACTIVE", phys="5: LinkUp", rate="400 Gb/sec (4X NDR)", **counters):
        folder = tmp_path / adapter / "ports" / "1"
        write(folder, state=state, phys_state=phys, rate=rate)
        write(folder / "counters", **{"link_downed": 0, "symbol_error": 0, "port_rcv_errors": 0, **counters})

    return write_port


def test_a_port_that_works(ports, tmp_path):
    ports()
    probe_run = ProbeRun(infiniband.InfinibandProbe(root=tmp_path))
    assert probe_run.all() == [("ib_port", "mlx5_0/1", "pass"), ("ib_rate", "mlx5_0/1", "pass")]
    assert ("ib_errors", "mlx5_0/1", "pass") in probe_run.all()
    assert probe_run.observe()[1].check.value == 400


def test_an_empty_cage_is_no_fault_unless_the_settings_name_it(ports, tmp_path):
    ports(state="1: DOWN", phys="3: Disabled")
    assert ProbeRun(infiniband.InfinibandProbe(root=tmp_path)).all() == []
    probe_run = ProbeRun(infiniband.InfinibandProbe(root=tmp_path, expected=("mlx5_0", "mlx5_9")))
    assert probe_run.bad() == [("ib_port", "mlx5_0/1", "warn", False), ("ib_port", "mlx5_9", "fail", True)]


def test_a_port_that_stays_down_is_lost_after_four_minutes(ports, tmp_path):
    ports()
    probe_run = ProbeRun(infiniband.InfinibandProbe(root=tmp_path))
    probe_run.observe()
    ports(state="1: DOWN", phys="2: Polling")
    assert [probe_run.bad() for _ in range(4)] == [[("ib_port", "mlx5_0/1", "warn", False)]] * 4
    assert probe_run.bad() == [("ib_port", "mlx5_0/1", "fail", True)]
    ports()
    assert probe_run.bad() == []


def test_an_adapter_that_vanishes_is_lost_after_four_minutes(ports, tmp_path):
    ports()
    probe_run = ProbeRun(infiniband.InfinibandProbe(root=tmp_path))
    probe_run.observe()
    shutil.rmtree(tmp_path / "mlx5_0")
    assert [probe_run.bad() for _ in range(4)] == [[("ib_port", "mlx5_0/1", "warn", False)]] * 4
    assert probe_run.bad() == [("ib_port", "mlx5_0/1", "fail", True)]
    ports()
    assert probe_run.bad() == []


def test_a_port_that_a_pod_was_given_for_itself_is_no_fault(ports, tmp_path):
    """RDMA devices in network namespaces: those of other namespaces are not shown."""
    shown, bus = tmp_path / "shown", tmp_path / "bus"
    probe = infiniband.InfinibandProbe(root=shown)
    probe_run = ProbeRun(probe)
    for adapter in ("mlx5_0", "mlx5_1"):
        (bus / adapter).mkdir(parents=True)
        ports(f"shown/{adapter}")
        (shown / adapter / "device").symlink_to(bus / adapter)
    (bus / "mlx5_1" / "physfn").mkdir()  # a virtual function
    probe_run.observe()
    shutil.rmtree(shown)
    assert [probe_run.bad() for _ in range(6)] == [[("ib_port", "mlx5_0/1", "warn", False)]] * 6
    shutil.rmtree(bus)
    assert probe_run.bad() == [("ib_port", "mlx5_0/1", "fail", True)]


def test_a_named_adapter_that_comes_back_passes(ports, tmp_path):
    probe_run = ProbeRun(infiniband.InfinibandProbe(root=tmp_path, expected=("mlx5_0",)))
    assert probe_run.bad() == [("ib_port", "mlx5_0", "fail", True)]
    ports()
    assert ("ib_port", "mlx5_0", "pass") in probe_run.all()


def test_a_port_that_flaps_is_found_though_it_is_up_at_each_look(ports, tmp_path):
    ports()
    probe_run = ProbeRun(infiniband.InfinibandProbe(root=tmp_path))
    probe_run.observe()
    ports(link_downed=1)
    assert probe_run.bad() == []
    ports(link_downed=2)
    assert probe_run.bad() == [("ib_port", "mlx5_0/1", "fail", True)]
    assert probe_run.bad(after=301) == []


def test_errors_and_a_slower_link_are_warnings(ports, tmp_path):
    ports(symbol_error=1000)
    probe_run = ProbeRun(infiniband.InfinibandProbe(root=tmp_path))
    assert probe_run.bad() == []  # from before
    ports(symbol_error=1007, rate="200 Gb/sec (4X HDR)")
    assert probe_run.bad() == [("ib_rate", "mlx5_0/1", "warn", False), ("ib_errors", "mlx5_0/1", "warn", False)]
    ports(symbol_error=1007)
    assert probe_run.bad() == []


def test_a_machine_without_adapters(tmp_path):
    assert ProbeRun(infiniband.InfinibandProbe(root=tmp_path / "none")).all() == []
