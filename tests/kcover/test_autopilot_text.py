"""The text of Autopilot's /status."""

from datetime import timedelta

import pytest

from kcover.checks import autopilot, autopilot_text
from kcover.faults.fault import Check
from tests.kcover.test_autopilot import check


def test_results_of_a_ring_as_a_table() -> None:
    rates = {"gpu-2": {"gpu-1": 90.0}, "gpu-1": {"gpu-2": 98.5, "gpu-3": 97.0}}
    assert autopilot_text.throughput_text(rates) == (
        "Average Bandwidth Gb/s: 95.17\n"
        "Network Throughput:\n"
        "src/dst  gpu-1    gpu-2    gpu-3\n"
        "gpu-1    N/A      98.5     97\n"
        "gpu-2    90       N/A      N/A\n"
        "\n"
    )
    assert autopilot_text.throughput_text({}) == ""


def test_the_text_of_a_node_has_autopilots_layout() -> None:
    results = [
        check("pciebw", "pass", "GPU-0", 24.5),
        check("pciebw", "fail", "GPU-1", 3.25, "under 4 GB/s"),
        check("dcgm", "error", message="no host engine"),
        check("ping", "skipped", message="nobody to ping"),
        check("remapped", "pass", "GPU-0", 0.0),
    ]
    text = autopilot_text.node_text(
        "n1", address="10.0.0.1", url="http://p/status?host=n1", results=results, status=autopilot.node_status(results)
    )
    assert text == (
        "Autopilot Endpoint: 10.0.0.1\nNode: n1\nurl(s): http://p/status?host=n1\nResponse:\n"
        "Checking system status of host n1 (localhost) \n\n"
        "[[ PCIEBW ]] Briefings completed. Continue with PCIe Bandwidth evaluation.\n"
        "[[ PCIEBW ]] FAIL\nHost  n1\n24.5 3.25\n[[ PCIEBW ]] FAIL GPU-1: under 4 GB/s\n\n"
        "[[ DCGM ]] ABORT\n[[ DCGM ]] ABORT n1: no host engine\n\n"
        "[PING] SKIPPED\n[PING] SKIPPED n1: nobody to ping\n\n"
        "[[ REMAPPED ROWS ]] Briefings completed. Continue with remapped rows evaluation.\n"
        "[[ REMAPPED ROWS ]] SUCCESS\nHost  n1\n0\n\n"
        "Node Status: PCIE Failed, DCGM Aborted\n-------------------------------------\n\n"
    )


def test_the_text_of_a_node_that_does_not_answer() -> None:
    text = autopilot_text.node_text(
        "n1", address="", url="u", results=[], status=[autopilot.NO_ANSWER], note="no agent"
    )
    assert "Response:\nABORT: no agent\n\nNode Status: Connection to Server Failed\n" in text


def test_the_summary_is_a_python_dict_and_the_runtime() -> None:
    said = {"n2": ["Ok"], "n1": ["PCIE Failed", "DCGM Failed"]}
    text = autopilot_text.summary_text(said, runtime=timedelta(seconds=31.84))
    assert text == ("Node Summary:\n\n{'n1': ['PCIE Failed', 'DCGM Failed'],\n 'n2': ['Ok']}\n\nruntime: 31.84 sec\n")


@pytest.mark.parametrize(
    ("results", "lines"),
    [
        (
            [check("dcgm", "pass")],
            ["[[ DCGM ]] Briefings completed. Continue with dcgm evaluation.", "[[ DCGM ]] SUCCESS"],
        ),
        (
            [check("dcgm", "fail"), check("dcgm", "fail", "gpu3 pcie", message="replay count")],
            [
                "[[ DCGM ]] Briefings completed. Continue with dcgm evaluation.",
                "Host n1",
                "[[ DCGM ]] FAIL",
                "[[ DCGM ]] FAIL n1: ",
                "[[ DCGM ]] FAIL gpu3 pcie: replay count",
            ],
        ),
        (
            [check("gpupower", "pass", "GPU-0", 0.0), check("gpupower", "fail", "GPU-1", 1.0, "slow")],
            ["[GPU POWER] FAIL", "0 1", "[GPU POWER] FAIL GPU-1: slow"],
        ),
        (
            [check("gpumem", "pass", "GPU-0", 1.0)],
            [
                "[[ GPU-MEM ]] Briefings completed. Continue with memory evaluation.",
                "[[ GPU-MEM ]] Health Check successful",
            ],
        ),
        (
            [check("ping", "pass", "10.0.0.2", 0.0), check("ping", "fail", "10.0.0.3", 100.0, "lost")],
            [
                "Node 10.0.0.2 10.0.0.2 host 0",
                "Node 10.0.0.3 10.0.0.3 host 1",
                "[PING] At least one node unreachable. FAIL",
                "[PING] FAIL 10.0.0.3: lost",
            ],
        ),
        (
            [check("ping", "pass", "10.0.0.2", 0.0)],
            ["Node 10.0.0.2 10.0.0.2 host 0", "[PING] all nodes reachable. success"],
        ),
        ([check("pvc", "pass")], ["[PVC Create-Delete] PVC SUCCESS"]),
        ([check("iperf", "pass", "10.0.0.2", 94.2)], ["[[ IPERF ]] SUCCESS", "Host  n1", "94.2"]),
    ],
)
def test_each_check_has_autopilots_words(results: list[Check], lines: list[str]) -> None:
    text = autopilot_text.node_text("n1", address="", url="", results=results, status=["Ok"])
    assert text.split("(localhost) \n\n")[1].split("\n\nNode Status")[0].splitlines() == lines


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "Checking status on all nodes\n"),
        ({"hosts": "all"}, "Checking status on all nodes\n"),
        ({"hosts": "n1,n2"}, "Asking to run on remote node(s) n1,n2 or with node label None\n\n"),
        (
            {"job": "ml:app=x", "label": "pool=a"},
            "Workload: ml: app=x\nAsking to run on remote node(s) all or with node label pool=a\n\n",
        ),
    ],
)
def test_the_heading_names_the_requested_nodes(given: dict[str, str], line: str) -> None:
    assert autopilot_text.heading(**{"hosts": "", "job": "", "label": "", **given}) == line
