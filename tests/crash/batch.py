"""Runs many cases at once, each on its own node, in one installation, and collects their results.

The cases of a wave start so that their calls arrive at about the same time. So all calls hang when the failure is
injected, and nothing else is running. A call that is too late for its wave gets its failure with the next wave, or at
the end. A case that is still not struck is tried again on another node.

No limit here depends on the number of cases: each wave and each trial has its own, and it only guards against hanging.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from itertools import islice

import psycopg

from tests.crash import diagnosis, setup, spares
from tests.crash.failure_injection import Blows
from tests.crash.installation import Installation
from tests.crash.people import People
from tests.crash.plans import HEAL, OTHER, PLANS, POLICIES
from tests.crash.points import SOON, Case
from tests.crash.setup import Prepared
from tests.crash.trials import Trial
from tests.story.product import call

LATE_SECONDS = 4.0  # so long a late call may have hung when the others are begun
HANG_SECONDS = 13.0  # and so long, when the blow no longer waits for the rest: a webhook waits 15 s for an answer
LOOKED_EVERY = 0.2  # seconds, at what hangs
HELPED_EVERY = 0.4  # seconds, at how far the rescues are
GATHER_SECONDS = 1.5  # what came too late for its wave is struck together with what else hangs so long after it
AGAIN = 2  # times a case is tried again that was not struck
WAVE_SECONDS = 120.0  # a wave is struck without the calls that have not come by then
TRIAL_SECONDS = 240.0  # so long after its beginning a trial that has not ended is given up
HEARD_SECONDS = RELEASED_SECONDS = 240.0
GRACE = ("--grace-seconds", "2.5")  # a pod that was told to go is still there when its eviction is tried again
REPORTS_A_SECOND = 10  # of all agents, at most
SPARES_EVERY = 8  # more nodes are simulated than are hurt: some are spares from the start


def run(product: Installation, waves: Sequence[Sequence[Case]], *, seconds: float = TRIAL_SECONDS) -> list[Trial]:
    """Sets the installation up and tries all cases, wave by wave; returns all trials, also those that were repeated.

    Each is over, or its time (``seconds`` after its beginning) is up. The controls, one for each plan, are begun first:
    nothing disturbs them before the first blow.
    """
    cases = [case for wave in waves for case in wave]
    plans = [*(case.point.plan for case in cases), *sorted({case.point.plan for case in cases})]
    wanted = len(plans)
    further = sum(PLANS[plan].standby or PLANS[plan].paired for plan in plans)
    nodes = wanted + wanted // SPARES_EVERY + 8 + further
    product.set_up(
        nodes=nodes,
        policies=POLICIES.replace(OTHER, product.other.url),
        boot_seconds=3,
        simulator=["--no-workloads", *GRACE, "--heartbeat-seconds", str(max(2.0, nodes / REPORTS_A_SECOND))],
    )
    product.guards_off()
    product.add_machine_driver()
    product.add_object_drivers()
    product.add_sources()
    query = "SELECT name FROM fleet_node WHERE gpus > 0 AND NOT unschedulable ORDER BY name"
    product.wait(lambda: len(product.rows(query)) >= wanted, "the nodes to be listed", seconds=240)
    names = [name for (name,) in product.rows(query)]
    struck: list[Case | None] = [*cases, *[None] * (wanted - len(cases))]
    trials = [Trial(node=name, plan=plan, case=case) for name, plan, case in zip(names, plans, struck, strict=False)]
    rest, controls = iter(trials[: len(cases)]), trials[len(cases) :]
    divided = [list(islice(rest, len(wave))) for wave in waves]
    free = names[wanted + further :]
    prepared = setup.prepare(product, trials, loose=names[wanted : wanted + further])
    Course(product, divided, prepared, seconds=seconds).run(controls)
    for _ in range(AGAIN):
        repeated = _repeated(trials, free)
        if not repeated:
            break
        further = sum(PLANS[trial.plan].standby or PLANS[trial.plan].paired for trial in repeated)
        loose, free = free[:further], free[further:]
        prepared = setup.prepare(product, repeated, loose=loose)
        # Blows first: an answer that never comes must not meet one.
        aimed, answered = [t for t in repeated if t.aimed], [t for t in repeated if not t.aimed]
        Course(product, [aimed, answered], prepared, seconds=seconds).run()
        trials += repeated
    return trials


def _repeated(trials: Sequence[Trial], free: list[str]) -> list[Trial]:
    """New trials of the cases that were not struck, on nodes taken from ``free``, as far as these suffice."""
    repeated: list[Trial] = []
    for trial in trials:
        needed = 2 if PLANS[trial.plan].standby or PLANS[trial.plan].paired else 1
        kept = sum(PLANS[one.plan].standby or PLANS[one.plan].paired for one in repeated)
        if not trial.missed or trial.repeated or len(free) - kept < needed:
            continue
        trial.repeated = True
        earlier = (*trial.earlier, trial.missed)
        repeated.append(Trial(node=free.pop(), plan=trial.plan, case=trial.case, earlier=earlier))
    return repeated


class Course:
    """The course of some of an installation's trials, in waves. ``seconds``: a trial's time."""

    def __init__(
        self, product: Installation, waves: Sequence[Sequence[Trial]], prepared: Prepared, *, seconds: float
    ) -> None:
        self._product, self._waves, self._prepared, self._seconds = product, waves, prepared, seconds
        self._trials = [trial for wave in waves for trial in wave]
        self._helped = 0.0

    def run(self, controls: Sequence[Trial] = ()) -> None:
        """Hurts the nodes of each wave, strikes when their calls hang, and returns when every rescue has ended."""
        self._trials += controls
        self._blows, self._people = Blows(self._product, self._trials), People(self._product, self._trials)
        try:
            for trial in controls:
                self._begin(trial)
            for wave in self._waves:
                self._wave(wave)
            self._until(self._over, seconds=self._seconds + WAVE_SECONDS)
        finally:
            self._blows.let_all_go()
        self._note_missed()
        self._give_back()

    def _wave(self, trials: Sequence[Trial]) -> None:
        """Begins each trial so long before the blow as its call takes to come, and strikes.

        On a busy machine that is longer: so what comes soon is begun when what comes late hangs.
        """
        aimed = [trial for trial in trials if trial.aimed]
        late = sorted((trial for trial in aimed if trial.comes > SOON), key=lambda trial: -trial.comes)
        waiting, began, longest = list(late), time.monotonic(), late[0].comes if late else 0.0

        def late_hang() -> bool:
            while waiting and time.monotonic() - began >= longest - waiting[0].comes:
                self._begin(waiting[0])
                waiting.pop(0)
            return not waiting and self._blows.all_hang(late, seconds=LATE_SECONDS)

        self._until(late_hang, seconds=WAVE_SECONDS)
        for trial in trials:
            if trial not in late:
                self._begin(trial)
        self._until(lambda: self._blows.all_hang(aimed, seconds=HANG_SECONDS), seconds=WAVE_SECONDS)
        self._blows.strike()
        for trial in aimed:
            if trial.aimed:
                trial.late = diagnosis.of(self._product, trial)

    def _note_missed(self) -> None:
        """Notes what the trials waited for that were not struck or have not ended, and takes their faults back."""
        pending, hanging = self._product.faults()
        for trial in self._trials:
            never = trial.aimed or (trial.case is not None and trial.node in pending)
            if not never and not trial.given_up:
                continue
            now = diagnosis.of(self._product, trial)
            if never and not trial.missed:
                trial.missed = f"{now} (when its wave was struck: {trial.late})" if trial.late else now
            if trial.given_up:
                trial.late = now
            if trial.node in pending or trial.node in hanging:
                self._product.let_go(trial.node)

    def _begin(self, trial: Trial) -> None:
        """Hurts the node, or has a decision system ask: until it is heard, as a server may just have been struck."""
        plan = PLANS[trial.plan]
        trial.began = time.monotonic()
        if plan.paired:
            self._until(lambda: self._paired(trial), seconds=HEARD_SECONDS)
        elif plan.joins:
            self._until(lambda: self._joined(trial), seconds=HEARD_SECONDS)
        elif plan.order:
            self._until(lambda: self._ordered(trial), seconds=HEARD_SECONDS)
        elif plan.by_hand:
            self._until(lambda: self._people.ask(trial, plan.by_hand), seconds=HEARD_SECONDS)
        elif plan.asked:
            self._until(lambda: self._asked(trial), seconds=HEARD_SECONDS)
        else:
            how = {"cure": plan.cure} if plan.cure else {"crash": True} if plan.dead else {}
            self._product.inject(trial.node, plan.xid, **how)

    def _ordered(self, trial: Trial) -> bool:
        """Returns whether the portal has the order. 409: it took the order and its answer was lost."""
        plan = PLANS[trial.plan]
        if plan.order == "label":
            setup.label_job(self._product, trial)
            return True
        kind = "VolcanoJob" if plan.gang else "PyTorchJob"
        about = f"/api/v1/jobs/sim/default/{kind}/{trial.node}-job/{plan.order}"
        status, answer = self._product.post(about, {"reason": "by hand"})
        assert status < 300 or status == 409 or status >= 500, answer
        return status < 500

    def _joined(self, trial: Trial) -> bool:
        setup.join(self._product, trial)
        return True

    def _paired(self, trial: Trial) -> bool:
        """Returns whether the portal has the plan. 409: it has the plan already, or too many others."""
        asked = {"cluster": "sim", "nodes": [trial.node, trial.partner], "rounds": 1, "reason": "by hand"}
        status, answer = self._product.post("/api/v1/preflight/plans", asked)
        assert status < 300 or status == 409 or status >= 500, answer
        return status < 300 or (status == 409 and answer["code"] == "pair_nodes_in_plan")

    def _asked(self, trial: Trial) -> bool:
        body = {"nodeName": trial.node, "xid": PLANS[trial.plan].xid, "escalateTime": "", "actions": HEAL}
        url, token = self._product.url + "/api/v1/rescue-actions", self._prepared.decider
        status, answer = call("POST", url, body, token=token)
        assert status < 300 or status >= 500, answer
        return status < 300

    def _over(self) -> bool:
        """Returns whether every trial is over. Strikes what came too late for its wave."""
        if any(age > GATHER_SECONDS for age in self._blows.hanging().values()):
            self._blows.strike()
        for trial in self._trials:
            if not trial.over and time.monotonic() - trial.began > self._seconds:
                trial.given_up = True
        return all(trial.over for trial in self._trials)

    def _until(self, so: Callable[[], bool], *, seconds: float) -> None:
        """Looks until it is so or the time is up; people do meanwhile what plans and cases need."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            dead = [f"{name}: {p.returncode}" for name, p in self._product.processes.items() if p.poll() is not None]
            assert not dead, f"ended by itself: {dead}\n{self._product.logs()}"
            with contextlib.suppress(psycopg.OperationalError, OSError):  # a server that was just struck
                if time.monotonic() - self._helped >= HELPED_EVERY:
                    self._people.look()
                    self._helped = time.monotonic()
                if so():
                    return
            time.sleep(LOOKED_EVERY)

    def _give_back(self) -> None:
        """A person releases every standby when all is over: it is to be as it was."""
        of = {trial.node: trial for trial in self._trials}
        for origin, spare in spares.release(self._product, of.keys()):
            of[origin].spares[spare] = self._prepared.spares[spare]
        self._until(lambda: spares.are_released(self._product), seconds=RELEASED_SECONDS)
