"""The device of a result of the check ``dcgm``: the GPU and DCGM's test, such as ``gpu3 GPU Memory``."""

from typing import Final

_GPU: Final = "gpu"
_NODE: Final = "node"


def gpu_name(gpu: str) -> str:
    """Returns ``gpu3`` for DCGM's number ``3``, and ``node`` for "", the node as a whole."""
    return f"{_GPU}{gpu}" if gpu else _NODE


def join(gpu: str, test: str) -> str:
    """Returns the device of a test on a GPU (DCGM's number; "": the node)."""
    return f"{gpu_name(gpu)} {test}"


def split(device: str) -> tuple[str, str]:
    """Returns the GPU (DCGM's number; "": the node) and the test of a device."""
    place, _, test = device.partition(" ")
    return ("" if place == _NODE else place.removeprefix(_GPU)), test
