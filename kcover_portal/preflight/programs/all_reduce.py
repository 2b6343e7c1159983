"""The program of a pair test's Job: an all-reduce over all GPUs of its nodes, with the bus bandwidth of each size.

It runs in an image with PyTorch (the cluster's setting ``nccl_image``), on each node of the pair, and imports nothing
of the portal. Environment: KCOVER_NODES, KCOVER_RANK of this node, KCOVER_MASTER (address of the first node),
KCOVER_PORT and KCOVER_GPUS. The result is the termination message of the container.
"""

import datetime
import json
import os
import pathlib
import sys

import torch
from torch import distributed, multiprocessing

SIZES = [2**power for power in range(23, 34, 2)]  # bytes: 8 MiB to 8 GiB
ROUNDS, WARM_UP_ROUNDS = 10, 3
ELEMENT_BYTES = 4
RENDEZVOUS = datetime.timedelta(seconds=120)
RESULT = pathlib.Path(os.environ.get("KCOVER_RESULT", "/dev/termination-log"))


def measure(local: int) -> None:
    """One process a GPU. The first one of each node writes the result."""
    nodes, node, gpus = (int(os.environ[name]) for name in ("KCOVER_NODES", "KCOVER_RANK", "KCOVER_GPUS"))
    with_gpus = torch.cuda.is_available()
    if with_gpus:
        torch.cuda.set_device(local)
    world = nodes * gpus
    distributed.init_process_group(
        "nccl" if with_gpus else "gloo",
        init_method=f"tcp://{os.environ['KCOVER_MASTER']}:{os.environ['KCOVER_PORT']}",
        rank=node * gpus + local,
        world_size=world,
        timeout=RENDEZVOUS,
    )
    busbw = {}
    for size in SIZES if with_gpus else SIZES[:1]:
        try:
            seconds = time_of(size, device=f"cuda:{local}" if with_gpus else "cpu")
        except torch.cuda.OutOfMemoryError:
            break  # the same on every GPU of the pair, or the rendezvous ends with an error
        busbw[str(size)] = round(size / seconds * 2 * (world - 1) / world / 1e9, 3)  # as in nccl-tests
    if local == 0:
        device = torch.cuda.get_device_name(local) if with_gpus else ""
        RESULT.write_text(json.dumps({"busbw": busbw, "device": device}), encoding="utf-8")
    distributed.destroy_process_group()


def time_of(size: int, *, device: str) -> float:
    """Seconds of one all-reduce of this many bytes, the mean of ROUNDS."""
    values = torch.ones(size // ELEMENT_BYTES, dtype=torch.float32, device=device)
    for _ in range(WARM_UP_ROUNDS):
        distributed.all_reduce(values)
    began = clock(device)
    for _ in range(ROUNDS):
        distributed.all_reduce(values)
    return (clock(device) - began) / ROUNDS


def clock(device: str) -> float:
    """The time once the device has done its work."""
    if device != "cpu":
        torch.cuda.synchronize(device)
    return datetime.datetime.now(datetime.UTC).timestamp()


if __name__ == "__main__":
    try:
        # Forked, because a program that was given as an argument cannot be imported again. CUDA begins in the children.
        multiprocessing.start_processes(measure, nprocs=int(os.environ["KCOVER_GPUS"]), start_method="fork")
    except Exception as error:  # the kubelet shows the message, and the test has no figure
        RESULT.write_text(f"{type(error).__name__}: {error}"[-2000:], encoding="utf-8")
        sys.exit(1)
