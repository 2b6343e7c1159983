"""The probe of NVMe disks, with a fake nvme."""

import json

import pytest

from agents.probes.host import nvme
from tests.agents.probe_run import ProbeRun


@pytest.fixture
def disks(tmp_path):
    for name in ("nvme0", "nvme1", "nvme-subsys0"):
        (tmp_path / "class" / name).mkdir(parents=True)
    return ProbeRun(nvme.NvmeProbe(root=tmp_path / "class"))


@pytest.mark.parametrize(
    ("warning", "status", "words"),
    [
        (0, "pass", ""),
        (2, "warn", "temperature out of range"),
        (9, "fail", "few spare blocks left; read-only"),
        ({"value": 4, "nvm_subsystem_reliability": 1}, "fail", "reliability degraded"),
        (64, "fail", "critical warning 0x40"),
    ],
)
def test_a_disks_own_warning(tools, disks, warning, status, words):
    tools.say("nvme", json.dumps({"critical_warning": warning, "temperature": 308, "percent_used": 7}))
    found = [one.check for one in disks.observe()]
    assert [(one.device, one.status, one.value, one.message) for one in found] == [
        (name, status, 7, words) for name in ("nvme0", "nvme1")
    ]


def test_inv_42_a_disk_that_cannot_be_queried_is_no_bad_disk(tools, disks, tmp_path):
    (missing,) = disks.observe()
    assert (missing.check.status, missing.check.message) == (
        "skipped",
        "nvme is not installed on this node: install nvme-cli",
    )
    good = json.dumps({"critical_warning": 0})
    tools.add("nvme", f"[ \"$1 $2 $3 $4\" = 'smart-log /dev/nvme1 -o json' ] && echo '{good}' || exit 2")
    assert disks.all() == [("nvme", "nvme0", "error"), ("nvme", "nvme1", "pass")]
    for nonsense in ("[]", "{}", "no JSON", '{"critical_warning": "hot"}'):
        tools.say("nvme", nonsense)
        assert [status for _, _, status in disks.all()] == ["error", "error"]
    assert ProbeRun(nvme.NvmeProbe(root=tmp_path / "none")).observe() == ()
