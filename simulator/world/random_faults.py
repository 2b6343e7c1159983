"""Random faults of a fleet, drawn from the fault mix at an accelerated rate.

Most lines of a kernel log come from bugs of programs. Now and then hardware fails, and no reboot cures some of these
faults.
"""

import random
from dataclasses import dataclass, field

from simulator.world import injector, machine, mix, pods, printk, workloads
from simulator.world.world import World

_REPEAT_SECONDS = 0.5  # between two prints of a repeated line
_MAX_REPEATS = 20
_WATCHDOG_SECONDS = (60.0, 180.0)  # until the watchdog of a hung machine resets it
_LOST_SHARE = 0.2  # share of the faults that only a repair cures whose machine does not finish the next boot
_PROGRAM_DEATH_SHARE = 0.738  # share of Xid 31 that ends its job on H100 (arXiv 2503.11901)
# Of one job by faults of its own program. Faults are compressed in time, and a job that failed as often as that would
# restart all the time: the portal would give it up as a crash loop.
_JOB_DEATHS_PER_HOUR = 0.5


@dataclass(slots=True)
class RandomFaults:
    """``faults_per_hour``: hardware faults in the whole fleet. Program faults come on top, in the ratio that the fault
    mix has for the level ``noise`` (``mix.NOISE_LEVELS``, empty for none). ``quiet_seconds``: no hardware fails before.
    """

    world: World
    rng: random.Random
    faults_per_hour: float
    preset: str = "mid"
    noise: str = "mixed"
    quiet_seconds: float = 0.0
    odds: mix.FaultMix = field(default_factory=mix.load)
    seen: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """Plan the first hardware fault and the first program fault; each plans the next one."""
        self._plan_fault(after=self.quiet_seconds)
        if self.noise:
            self._plan_noise()

    @property
    def noise_per_hour(self) -> float:
        """Program faults in the whole fleet."""
        if not self.noise:
            return 0.0
        return self.faults_per_hour * self.odds.noise_rate(self.noise) / self.odds.rate(self.preset, visible=True)

    @property
    def compression(self) -> float:
        """The factor by which hardware fails faster than in a real fleet of this size."""
        gpus = sum(host.gpus for host in self.world.machines.values())
        return self.faults_per_hour / (self.odds.rate(self.preset, visible=True) * gpus) if gpus else 0.0

    def fail_hardware(self) -> None:
        """Inject one hardware fault into a machine that is up and has no fault yet."""
        candidates = [
            host for host in self.world.machines.values() if host.gpus and host.power == machine.UP and not host.faults
        ]
        if candidates:
            self.apply(self.rng.choice(candidates), self.odds.draw(self.rng, preset=self.preset))

    def apply(self, host: machine.Machine, drawn: mix.DrawnFault) -> None:
        """Apply a drawn fault to a machine."""
        self._count(drawn.id)
        gpu = None if drawn.hangs_node else self.rng.randrange(host.gpus)
        lines: list[str] = [line for code in drawn.sxids for line in printk.sxid(code)]
        if gpu is not None:
            first = drawn.xids[0] if drawn.xids else None
            for code in drawn.xids:
                cause = first if code == 45 else None
                process = injector.process_on(host.name)
                lines += printk.xid(code, machine.pci(gpu), process=process, cause=cause)
        numbers = drawn.sxids or drawn.xids
        active = machine.ActiveFault(
            kind="hang" if drawn.hangs_node else "sxid" if drawn.sxids else "xid",
            code=numbers[0] if numbers else drawn.id,
            gpu=gpu,
            cure=drawn.cure,
            lines=tuple(lines),
            since=self.world.agenda.now(),
            comes_back=drawn.cure != "repair" or self.rng.random() >= _LOST_SHARE,
        )
        host.add_fault(active)
        if drawn.hangs_node:
            host.hang()
            if drawn.cure != "repair":
                self.world.agenda.after(self.rng.uniform(*_WATCHDOG_SECONDS), lambda: _reset(host))
            return
        if drawn.xids:
            self._repeat(host, drawn.xids[0], lines[:1])
        if drawn.kills_job:
            self.world.crash_on(host.name, gpu, message=f"NCCL error: unhandled system error, Xid {numbers[0]}")

    def fail_program(self) -> None:
        """Inject one program fault: on one rank of a running job, or on all ranks."""
        running = [
            pod
            for pod in self.world.objects.list("Pod", namespace="training")
            if pods.phase(pod) == "Running" and not pods.deleting(pod)
        ]
        if not running:
            return
        chosen = self.rng.choice(running)
        job = chosen["metadata"]["labels"].get(workloads.JOB_NAME)
        xids = self.odds.draw_noise(self.rng)
        self._count("program")
        ranks = [chosen]
        if self.rng.random() < self.odds.all_ranks:
            ranks = [pod for pod in running if pod["metadata"]["labels"].get(workloads.JOB_NAME) == job]
        jobs = {pod["metadata"]["labels"].get(workloads.JOB_NAME) for pod in running}
        dies = self.rng.random() < min(_PROGRAM_DEATH_SHARE, len(jobs) * _JOB_DEATHS_PER_HOUR / self.noise_per_hour)
        if dies:
            self._count("program_death")
        for pod in ranks:
            node = pods.node_of(pod)
            host = self.world.machines[node]
            gpu = self.rng.randrange(host.gpus)
            process = injector.process_on(node)
            for code in xids:
                host.write(*printk.xid(code, machine.pci(gpu), process=process))
            self._repeat(host, xids[0], printk.xid(xids[0], machine.pci(gpu), process=process)[:1])
            if dies:
                self.world.kubelets[node].crash(pod, message="CUDA error: an illegal memory access was encountered")

    def _repeat(self, host: machine.Machine, code: int, lines: list[str]) -> None:
        """Print a fault's line again for as long as faults of this kind last."""
        persistence = self.odds.persistence.get(code)
        if not persistence:
            return
        times = min(int(self.rng.expovariate(1 / persistence) / _REPEAT_SECONDS), _MAX_REPEATS)
        for time in range(times):
            self.world.agenda.after((time + 1) * _REPEAT_SECONDS, lambda: host.write(*lines))

    def _plan_fault(self, *, after: float = 0.0) -> None:
        def act() -> None:
            self._plan_fault()
            self.fail_hardware()

        self.world.agenda.after(after + self.rng.expovariate(self.faults_per_hour / 3600), act)

    def _plan_noise(self) -> None:
        def act() -> None:
            self._plan_noise()
            self.fail_program()

        self.world.agenda.after(self.rng.expovariate(self.noise_per_hour / 3600), act)

    def _count(self, id: str) -> None:
        self.seen[id] = self.seen.get(id, 0) + 1


def _reset(host: machine.Machine) -> None:
    if host.power == machine.HUNG:
        host.reboot("watchdog")
