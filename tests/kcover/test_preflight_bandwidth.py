"""The result of a pair test's container: what is read, what is refused, and what a pair's figure is."""

import json
from typing import Any

import pytest

from kcover.preflight import bandwidth

GPU = "NVIDIA H100 80GB HBM3"


def text(busbw: Any = None, **more: Any) -> str:
    return json.dumps({"busbw": {"8388608": 190.5, "134217728": 402} if busbw is None else busbw, **more})


def test_sizes_are_read_smallest_first() -> None:
    found = bandwidth.read(text({"134217728": 402, "8388608": 190.5}, device=GPU))
    assert list(found.by_size.items()) == [(8388608, 190.5), (134217728, 402.0)]
    assert (found.best, found.device) == (402.0, GPU)


@pytest.mark.parametrize("device", [{}, {"device": ""}, {"device": None}])
def test_without_a_device_no_gpu_was_measured(device: dict[str, Any]) -> None:
    assert bandwidth.read(text(**device)).device == ""


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("", "bandwidth_not_json"),
        ("NCCL error", "bandwidth_not_json"),
        ("[" * 5000, "bandwidth_not_json"),
        ("[]", "bandwidth_sizes"),
        ("{}", "bandwidth_sizes"),
        (text({}), "bandwidth_sizes"),
        (text({str(size): 1 for size in range(bandwidth.MAX_SIZES + 1)}), "bandwidth_sizes"),
        (text({"8M": 1}), "bandwidth_size_invalid"),
        (text({"-8": 1}), "bandwidth_size_invalid"),
        (text({"٨": 1}), "bandwidth_size_invalid"),
        (text({"8": "fast"}), "bandwidth_figure_invalid"),
        (text({"8": True}), "bandwidth_figure_invalid"),
        (text({"8": -1}), "bandwidth_figure_invalid"),
        ('{"busbw": {"8": NaN}}', "bandwidth_figure_invalid"),
        ('{"busbw": {"8": Infinity}}', "bandwidth_figure_invalid"),
        ('{"busbw": {"8": 1' + "0" * 400 + "}}", "bandwidth_figure_invalid"),
        (text(device=7), "bandwidth_device_invalid"),
        (text(device="H\0"), "bandwidth_device_invalid"),
    ],
)
def test_an_unreadable_report_is_refused(given: str, code: str) -> None:
    with pytest.raises(bandwidth.BandwidthInvalid) as refused:
        bandwidth.read(given)
    assert refused.value.reason.code == code


def test_a_pair_is_as_fast_as_its_slower_node() -> None:
    first = bandwidth.Bandwidth({8: 100.0, 16: 400.0}, GPU)
    second = bandwidth.Bandwidth({8: 120.0, 16: 300.0, 32: 500.0}, GPU)
    pair = bandwidth.of_nodes([first, second])
    assert (dict(pair.by_size), pair.best, pair.device) == ({8: 100.0, 16: 300.0}, 300.0, GPU)
    assert bandwidth.of_nodes([second, first]) == pair
    assert bandwidth.of_nodes([first, bandwidth.Bandwidth({8: 1.0})]).device == ""
    assert bandwidth.of_nodes([bandwidth.Bandwidth({8: 1.0}), first]).device == ""
    with pytest.raises(bandwidth.BandwidthInvalid) as refused:
        bandwidth.of_nodes([first, bandwidth.Bandwidth({64: 1.0}, GPU)])
    assert refused.value.reason.code == "bandwidth_no_common_size"
