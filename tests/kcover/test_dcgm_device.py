"""The device of a result of the check ``dcgm``."""

import pytest

from kcover.faults import dcgm_device


@pytest.mark.parametrize(
    ("gpu", "test", "device"), [("3", "GPU Memory", "gpu3 GPU Memory"), ("", "software", "node software")]
)
def test_a_device_is_joined_and_split(gpu: str, test: str, device: str) -> None:
    assert dcgm_device.join(gpu, test) == device
    assert dcgm_device.split(device) == (gpu, test)
