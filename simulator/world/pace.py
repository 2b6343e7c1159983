"""How fast the world moves, in seconds of its clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Durations. The defaults suit a demo; a benchmark sets ``boot`` and ``grace`` to 0, a real fleet has 480 and 30.

    ``boot``: from the reboot until the new kernel runs. ``grace``: the maximum a pod takes to end, whatever it
    requests. ``start``: until a bound pod runs. ``notice``: until the node of a silent kubelet is NotReady (40 in a
    real cluster). ``settle``: from the kubelet's return until Ready. ``evict``: until the pods of a NotReady node are
    deleted (300 in a real cluster). ``run``: how long a Job's pod runs. ``back_off``: until a crashed container
    restarts, doubled each time. ``repair``: until a person repairs what no reboot cures; 0 = never.
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
