"""NVIDIA's real libraries and a real GPU: devices, inventory, every rule, the checks that measure, Xid events.

Skipped without a GPU; docs/testing.md says how to run it on a GPU node, which needs neither Django nor servers.
The suite runs it over libraries of its own (test_nvml_shim.py), so that it does not rot.
"""

import dataclasses
import json
import os
import pathlib
import re
import time
from datetime import UTC, datetime

import pytest

from agents.checks import bandwidth, dcgm, gpu_state, health_check
from agents.host import programs
from agents.outbox import reports
from agents.probes.gpu import nvml
from agents.probes.gpu.nvidia import NvidiaProbe
from kcover import wire
from kcover.faults.fault import CHECK_STATUSES

DEVICE = pathlib.Path(os.environ.get("KCOVER_TEST_GPU", "/dev/nvidia0"))
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}")
# What every data centre board since the A100 answers: a rule that falls silent there is our mistake.
ANSWERED = {"gpu", "remapped", "remap_failure", "ecc", "ecc_mode", "clocks", "pcie_width", "power_limit"}

pytestmark = pytest.mark.skipif(not DEVICE.exists(), reason=f"there is no NVIDIA GPU here ({DEVICE})")


@pytest.fixture(scope="module")
def devices():
    """Each GPU as the driver tells it; printed with ``-rP``."""
    found = nvml.devices()
    for device in found:
        print(json.dumps(dataclasses.asdict(device)))
    return found


def healthy(devices):
    """Those that a measurement may load: the others are skipped by the checks, too."""
    return [device for device in devices if not (device.lost or device.mig or device.processes)]


def test_every_gpu_answers(devices):
    assert devices
    for device in devices:
        assert (device.lost, device.hung_seconds, device.errors) == ("", 0.0, ())
        assert UUID.fullmatch(device.uuid)
        assert PCI.fullmatch(device.pci)
        assert device.model
        assert device.processes is not None
        assert device.temperature is None or 0 < device.temperature < 120
        assert device.power is None or 0 < device.power < 5_000_000
        assert device.power_limit is None or 10_000 < device.power_limit < 5_000_000
        assert device.pcie is None or 0 < device.pcie.width <= device.pcie.max_width <= 32
    assert len({device.uuid for device in devices}) == len(devices)


def test_the_inventory_is_of_the_same_gpus_and_fits_into_a_report(devices):
    inventory = nvml.inventory()
    assert re.match(r"[0-9]+\.[0-9]+", inventory.driver)
    assert inventory.kernel == os.uname().release
    assert [(gpu.uuid, gpu.pci) for gpu in inventory.gpus] == [(device.uuid, device.pci) for device in devices]
    now = datetime.now(UTC)
    report = reports.heartbeat("gpu-1", boot_id="boot-1", inventory=inventory, results=(), now=now)
    decoded = wire.decode(report.body)
    assert (decoded.rejected, decoded.report.inventory) == ((), inventory)


def test_every_rule_judges_the_state_of_the_driver(devices):
    """Twice, as rates need two looks. Findings may be bad: it is the node that is as it is."""
    probe = NvidiaProbe(expected=lambda: len(devices))
    probe.observe(datetime.now(UTC))
    time.sleep(1)
    reading = probe.observe(datetime.now(UTC))
    found = {(one.check.name, one.check.device): one.check for one in reading.findings}
    for check in found.values():
        print(json.dumps(dataclasses.asdict(check)))
    assert {check.status for check in found.values()} <= set(CHECK_STATUSES)
    assert found["driver", ""].status == found["gpu_count", ""].status == "pass"
    for device in devices:
        reported = {name: check for (name, of), check in found.items() if of == device.uuid}
        assert reported["gpu"].status == "pass"
        assert "nvml" not in reported, reported["nvml"].message
        if bandwidth.A100_CLASS.search(device.model) and not device.mig:
            assert set(reported) >= ANSWERED
    report = reports.findings_report("gpu-1", (), list(found.values()), boot_id="boot-1", now=datetime.now(UTC))
    assert wire.decode(json.dumps(report).encode()).rejected == ()


@pytest.mark.parametrize("check", [gpu_state.Remapped, gpu_state.GpuPower])
def test_the_checks_that_read(devices, check):
    results = check().run({})
    assert [result.device for result in results] == [device.uuid for device in devices]
    assert {result.status for result in results} <= {"pass", "fail", "skipped"}


def test_bandwidth_of_each_idle_gpu_is_measured(devices):
    if not healthy(devices):
        pytest.skip("every GPU is in use")
    results = {result.device: result for result in bandwidth.PcieBandwidth().run({})}
    for device in healthy(devices):
        result = results[device.uuid]
        print(result)
        assert result.status in ("pass", "fail"), result.message
        assert 0.1 < result.value < 1000


def test_daxpy_and_dgemm_compute_the_expected_values(devices):
    if not healthy(devices):
        pytest.skip("every GPU is in use")
    try:
        results = {result.device: result for result in bandwidth.GpuMemory().run({})}
    except health_check.CheckSkipped as reason:
        pytest.skip(str(reason))
    for device in healthy(devices):
        result = results[device.uuid]
        print(result)
        assert result.status in ("pass", "fail"), result.message
        assert "wrong" not in result.message
        assert result.value > 0


def test_measurements_name_gpus_by_the_uuids_of_the_driver(devices):
    """Or results would be of no GPU: CUDA's own order and numbers are others."""
    free = healthy(devices)
    if not free:
        pytest.skip("every GPU is in use")
    ended = bandwidth.run_in_child("pciebw", [free[-1].uuid], bandwidth.SECONDS_PER_GPU)
    assert [json.loads(line)["uuid"] for line in ended.stdout_or_raise("pciebw").splitlines()] == [free[-1].uuid]


def test_events_of_every_gpu_are_opened_and_released(devices):
    events = nvml.XidEvents()
    try:
        assert sorted(events._slots.values()) == sorted(device.pci for device in devices)
        assert events.wait(0.1) is None
    finally:
        events.close()
    with nvml.exclusive(timeout=5):
        assert [device.uuid for device in nvml.devices(within_exclusive=True)] == [device.uuid for device in devices]


def test_the_output_of_dcgm_is_understood():
    try:
        results = dcgm.Dcgm().run({"r": 1})
    except (
        programs.ToolMissing,
        health_check.CheckSkipped,
        RuntimeError,
    ) as reason:  # RuntimeError: no host engine
        pytest.skip(str(reason))
    assert {result.name for result in results} == {"dcgm"}
