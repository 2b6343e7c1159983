"""How fast the world moves, in seconds of its clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Durations. The defaults suit a demo; a benchmark sets ``boot`` and ``grace`` to 0, a real fleet has 480 and 30.

    ``boot``: from the reboot until the new kernel answers. ``grace``: the longest a pod takes to end, whatever it asks
    for. ``start``: until a bound pod runs. ``notice``: until a silent kubelet's node is NotReady (a real cluster's 40).
    ``settle``: from the kubelet's return until Ready. ``evict``: until a NotReady node's pods are deleted (a real 300).
    ``run``: how long a Job's pod runs. ``back_off``: until a crashed container starts again, doubled each time.
    ``repair``: until a person mends what no reboot cures; 0 = nobody ever comes.
    """

    boot: float = 8.0
    grace: float = 2.0
    start: float = 1.0
    notice: float = 2.0
    settle: float = 0.5
    evict: float = 300.0
    run: float = 2.0
    back_off: float = 10.0
    repair: float = 900.0
