"""People who move GPUs between machines."""

import uuid
from dataclasses import replace

from kcover.faults import fault
from simulator.world.machine import Machine


def move_gpu(source: Machine, index: int, target: Machine, slot: int) -> fault.Gpu:
    """Puts the GPU of the source into a slot of the target, and a new one into its place.

    The GPU that was in the target's slot leaves the cluster. Agents see it when they start again, as after a boot.
    Raises IndexError for a slot that does not exist.
    """
    moved, made = source.inventory.gpus[index], str(uuid.uuid4())
    new = replace(moved, uuid=f"GPU-{made}", serial=f"{uuid.UUID(made).int % 10**13:013d}")
    there = target.inventory.gpus[slot]
    _put(source, index, new)
    _put(target, slot, replace(there, uuid=moved.uuid, serial=moved.serial, model=moved.model))
    return moved


def _put(machine: Machine, slot: int, gpu: fault.Gpu) -> None:
    gpus = (*machine.inventory.gpus[:slot], gpu, *machine.inventory.gpus[slot + 1 :])
    machine.inventory = replace(machine.inventory, gpus=gpus)
