"""The real pynvml against a libnvidia-ml.so.1 of our own: every state that a rule reads, and every way to fail."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.agents.shim import UUIDS

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALONE = ("-c", "/dev/null", "--rootdir=.", "--noconftest", "-p", "no:cacheprovider", "-rPs")

DEVICES = """
import dataclasses
from agents.probes.gpu import nvml
try:
    print(json.dumps([dataclasses.asdict(one) for one in nvml.devices()]))
except nvml.DriverError as error:
    print(json.dumps({"error": str(error), "code": error.code, "absent": error.absent}))
"""


def test_a_healthy_gpu_is_read_from_the_driver(ask):
    first, second = ask(DEVICES)
    assert first == {
        "index": 0,
        "uuid": UUIDS[0],
        "pci": "0000:4e:00",
        "model": "NVIDIA H100 80GB HBM3",
        "lost": "",
        "code": 0,
        "hung_seconds": 0.0,
        "busy": True,
        "processes": [],
        "mig": False,
        "recovery_action": 0,
        "rows": {"corrected": 0, "uncorrected": 0, "pending": False, "failed": False, "banks_without_spares": 0},
        "pages_retired": None,
        "pages_pending": None,
        "repair_pending": False,
        "ecc": True,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "sram_threshold": False,
        "clock_reasons": 4,
        "throttled_ns": {"thermal": 0},
        "pcie": {"width": 16, "max_width": 16, "generation": 5, "max_generation": 5, "replays": 0},
        "nvlink": {
            "count": 4,
            "active": 4,
            "errors": {"replay": 0, "recovery": 0, "ECC": 0},
            "recovery_failed": 0,
            "crc": [0] * 4,
        },
        "fabric": [3, 0, 0],
        "slowdown_margin": 40,
        "temperature": 45,
        "slowdown": 90,
        "power": 412000,
        "power_limit": 700000,
        "power_default": 700000,
        "errors": [],
    }
    assert second["uuid"] == UUIDS[1]


def test_failures_of_a_gpu_are_read_from_the_driver(ask, driver):
    driver.set(
        gpu0__field230__0=2,
        gpu0__field214__3=5,
        gpu0__nvlink1__error0=7,
        gpu0__nvlink2__error2=30,
        gpu0__nvlink2__error3=4,
        gpu0__nvlink3__error4=6,
        gpu0__field91__0=6,
        gpu0__nvlinks_down=1,
        gpu0__rows_pending=1,
        gpu0__rows_uncorrected=3,
        gpu0__sram=1,
        gpu0__process=4711,
        gpu0__mig=1,
        gpu0__fabric_health=0x11,
        gpu0__margin=3,
        gpu0__repair=1,
        gpu0__ecc_uncorrected=2,
    )
    first, second = ask(DEVICES)
    assert first["recovery_action"] == 2
    assert first["rows"]["pending"]
    assert first["rows"]["uncorrected"] == 3
    assert first["sram_threshold"]
    assert (first["processes"], first["mig"]) == ([4711], True)
    assert first["fabric"] == [3, 0, 0x11]
    errors = {"replay": 7, "recovery": 0, "ECC": 6}
    links = {"count": 6, "active": 3, "errors": errors, "recovery_failed": 5, "crc": [0, 0, 34, 0]}
    assert first["nvlink"] == links
    assert (first["slowdown_margin"], first["repair_pending"], first["ecc_uncorrected"]) == (3, True, 2)
    assert second["rows"]["pending"] is False


def test_an_old_board_answers_less(ask, driver):
    for key in (
        "rows_pending",
        "rows_none",
        "sram",
        "repair",
        "nvlinks",
        "fabric",
        "margin",
        "field230.0",
        "field94.0",
    ):
        driver.state.pop(f"0.{key}")
    driver.set(gpu0__pages_single=3, gpu0__pages_double=1, gpu0__pages_pending=1)
    first, _ = ask(DEVICES)
    assert first["rows"] is None
    assert (first["pages_retired"], first["pages_pending"]) == (4, True)
    assert [first[key] for key in ("sram_threshold", "nvlink", "fabric", "slowdown_margin", "recovery_action")] == [
        None
    ] * 5
    assert first["pcie"]["replays"] is None


@pytest.mark.parametrize("where", ["handle", "uuid", "ecc", "busy"])
def test_a_lost_gpu_leaves_the_others(ask, driver, where):
    driver.set(**{f"gpu0__{where}": "!15"})
    first, second = ask(DEVICES)
    assert (first["lost"], first["code"]) == ("GPU is lost", 15)
    assert second["lost"] == ""


def test_an_unexpected_error_is_a_trouble_and_the_rest_is_read(ask, driver):
    driver.set(gpu0__margin="!999")
    first, _ = ask(DEVICES)
    assert len(first["errors"]) == 1
    assert first["errors"][0].startswith("MarginTemperature")
    assert first["power_limit"] == 700000


@pytest.mark.parametrize(("code", "absent"), [(9, True), (18, False), (999, False)])
def test_a_driver_that_does_not_answer(ask, driver, code, absent):
    driver.set(init=f"!{code}")
    answer = ask(DEVICES)
    assert (answer["code"], answer["absent"]) == (code, absent)


def test_the_inventory(ask):
    found = ask("""
import dataclasses
from agents.probes.gpu import nvml
print(json.dumps(dataclasses.asdict(nvml.inventory())))
""")
    assert found["driver"] == "580.65.06"
    assert [(gpu["index"], gpu["pci"], gpu["serial"]) for gpu in found["gpus"]] == [
        (0, "0000:4e:00", "1652"),
        (1, "0000:5e:00", "1652"),
    ]


def test_xid_events_name_their_gpu(ask, driver):
    driver.set(xid="1 79")
    assert ask("""
from agents.probes.gpu import nvml
events = nvml.XidEvents()
found = [events.wait(0.1), events.wait(0.1)]
events.close()
print(json.dumps(found))
""") == [[79, "0000:5e:00"], None]


def test_no_events_without_a_driver(ask, driver):
    driver.set(init="!9")
    assert ask("""
from agents.probes.gpu import nvml
try:
    nvml.XidEvents()
except nvml.DriverError as error:
    print(json.dumps(error.absent))
""")


HANGING = """
import os, threading
from agents.probes.gpu import nvml
nvml.state_queries.timeout = nvml.name_queries.timeout = 1.0
looks = [nvml.devices() for _ in range(3)]
threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
gpus = [(gpu.index, gpu.uuid) for gpu in nvml.inventory().gpus]
try:
    with nvml.exclusive(timeout=0.05):
        reset = "allowed"
except nvml.DriverError as error:
    reset = str(error)
seen = [(gpu.uuid, gpu.pci, gpu.lost.partition(" has")[0], gpu.hung_seconds > 0, gpu.ecc) for gpu in looks[-1]]
print(json.dumps({"seen": seen, "threads": threads, "gpus": gpus, "reset": reset}), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_a_gpu_that_hangs_is_queried_once_and_the_other_is_observed(ask, driver):
    driver.set(gpu0__ecc="hang")
    reported = ask(HANGING)
    assert reported["seen"] == [
        [UUIDS[0], "0000:4e:00", "nvmlDeviceGetEccMode", True, None],
        [UUIDS[1], "0000:5e:00", "", False, True],
    ]
    assert reported["threads"] == ["NVML state of GPU 0"]
    assert reported["gpus"] == [[0, UUIDS[0]], [1, UUIDS[1]]]
    assert reported["reset"].startswith("a call to the driver did not return")


@pytest.mark.slow
def test_a_gpu_that_hangs_from_the_start_is_known_by_its_place(ask, driver):
    driver.set(gpu0__handle="hang")
    reported = ask(HANGING)
    assert reported["seen"] == [
        ["", None, "nvmlDeviceGetHandleByIndex", True, None],
        [UUIDS[1], "0000:5e:00", "", False, True],
    ]
    assert reported["gpus"] == [[1, UUIDS[1]]]


@pytest.mark.slow
def test_a_gpu_that_begins_to_hang_stays_in_the_inventory(ask, driver):
    assert ask("""
import os, pathlib
from agents.probes.gpu import nvml
nvml.name_queries.timeout = 1.0
before = nvml.inventory()
state = pathlib.Path(os.environ["NVML_SHIM"])
state.write_text(state.read_text() + "1.uuid hang" + chr(10))
print(json.dumps([nvml.inventory() == before, [gpu.uuid for gpu in before.gpus]]), flush=True)
os._exit(0)
""") == [True, list(UUIDS)]


@pytest.mark.slow
def test_the_tests_for_a_real_gpu_run_over_the_shim(driver, tmp_path):
    """tests/agents/test_real_gpu.py, by the command in docs/testing.md: on a machine without a GPU it would rot."""
    (tmp_path / "nvidia0").touch()
    ended = subprocess.run(
        (sys.executable, "-m", "pytest", *ALONE, "tests/agents/test_real_gpu.py"),
        env=os.environ
        | driver.environ
        | {"KCOVER_TEST_GPU": str(tmp_path / "nvidia0"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, "9 passed, 1 skipped" in ended.stdout) == (0, True), ended.stdout
    assert "dcgmi is not installed on this node" in ended.stdout


def test_the_driver_refuses_other_sessions_while_a_gpu_is_reset(ask):
    assert ask("""
from agents.probes.gpu import nvml
told = []
with nvml.session():
    try:
        with nvml.exclusive(timeout=0.05):
            pass
    except nvml.DriverError as error:
        told.append(str(error))
with nvml.exclusive(timeout=0.05):
    told.append(len(nvml.devices(within_exclusive=True)))
    try:
        with nvml.session(timeout=0.05):
            pass
    except nvml.ResetInProgress as error:
        told.append(error.absent)
told.append(len(nvml.devices()))
print(json.dumps(told))
""") == ["a call to the driver did not return in 0.05 s", 2, False, 2]
