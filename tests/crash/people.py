"""Actions of people while the rescues run, and the rescues that have ended."""

import time
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

from tests.crash import rescues
from tests.crash.installation import Installation
from tests.crash.plans import PLANS, Plan
from tests.crash.rescues import Row
from tests.crash.trials import Trial
from tests.story.person import Person
from tests.story.product import PASSWORD, call

VERBS = {  # by which a repair goes on, by its state
    "reported": "accept",
    "accepted": "hand-over",
    "in_repair": "return",
    "returned": "close",
    "validating": "close",
}


def _has_ended(plan: Plan, states: Sequence[str]) -> bool:
    """``states``: of the node's rescues, of the order about its job, or of its preflight plan."""
    return len(states) >= max(1, len(plan.ends)) and not set(states) & set(rescues.UNDER_WAY)


class People:
    """Whoever looks after the nodes of these trials."""

    def __init__(self, product: Installation, trials: Sequence[Trial]) -> None:
        self._product, self._trials = product, trials
        self._anna: Person | None = None  # signed in

    def look(self) -> None:
        """Does what plans need from outside, and notes which are over."""
        found, orders = rescues.by_node(self._product), rescues.orders_by_node(self._product)
        pairs = rescues.pair_plans_by_node(self._product)
        on_probation = rescues.on_probation(self._product)
        for trial in self._trials:
            mine, plan = found.get(trial.node, []), PLANS[trial.plan]
            states = [row.state for row in mine]
            if plan.order or plan.paired:
                states = (orders if plan.order else pairs).get(trial.node, [])
            if mine and self._answered(trial, mine[-1]):
                continue
            if plan.released and not plan.hung and not trial.helped and states == ["succeeded"]:
                if not plan.dead or self._rebooted(trial):
                    trial.helped = self.ask(trial, "release")
            elif plan.by_hand == "exclude" and states == ["succeeded"]:  # the role of programs may not end it
                self._in_console(f"/nodes/sim/{trial.node}/end_exclusion/", {"reason": "looked at"})
            elif plan.probation and states == ["succeeded"] and trial.node in on_probation:
                trial.helped = trial.helped or self._end_probation(trial)
            elif not trial.seconds and _has_ended(plan, states):
                trial.seconds = time.monotonic() - trial.began
        self._see_to_machines(found)

    def _answered(self, trial: Trial, row: Row) -> bool:
        """Does what the rescue waits for somebody to do; returns False if it waits for nobody."""
        plan = PLANS[trial.plan]
        if self._ordered_in_vain(trial, row):
            self._order_again(trial, row)
        elif row.state == "held" and (plan.cycled or plan.owner):
            self._ask_again(trial, row)
        elif plan.approved and row.hold == "approval":
            self._approve(row)
        elif plan.repaired and row.state == "waiting":
            self._repair(trial)
        else:
            return False
        return True

    def _see_to_machines(self, found: dict[str, list[Row]]) -> None:
        """Starts agents after the reboot that a job did; cancels what hangs, and has the machine switched on."""
        asked = [trial for trial in self._trials if PLANS[trial.plan].asked and not trial.helped and trial.began]
        if not asked:
            return
        machines = {row["name"]: row for row in call("GET", self._product.sim + "/sim/nodes")[1]["nodes"]}
        called_back = rescues.asked_of_jobs(self._product, [trial.node for trial in asked if PLANS[trial.plan].hung])
        for trial in asked:
            machine = machines[trial.node]
            booted = machine["boot_id"] != trial.boot
            if not PLANS[trial.plan].hung:
                if booted:
                    self._product.post_sim(f"/sim/nodes/{trial.node}/agent", {"running": True})
                    trial.helped = True
            elif booted and machine["ready"] and len(found[trial.node]) == 1:
                trial.helped = self.ask(trial, "release")
            elif trial.node in called_back and not booted:
                self._end(trial, found[trial.node][-1], under_way=called_back[trial.node])

    def _end(self, trial: Trial, row: Row, *, under_way: bool) -> None:
        """Cancels a rescue that waits in vain for its reboot; when that is called back, switches the machine on."""
        if row.state in rescues.UNDER_WAY:
            self._say(f"/api/v1/rescues/{row.pk}/cancel", "the machine is switched off and on by hand")
        elif not under_way:
            self._product.post_sim(f"/sim/nodes/{trial.node}/cure", {})

    def _ordered_in_vain(self, trial: Trial, row: Row) -> bool:
        """Returns whether the other system lost the order, so that a person may give it once more.

        Any trial may lose its order: a worker that is killed for another trial may be about to make this one's call.
        """
        lost = row.state == "held" or (row.state, row.hold) == ("waiting", "external")
        if trial.helped or not trial.case or not lost or not PLANS[trial.plan].ordered:
            return False
        other = self._product.other
        return not other.taken[trial.node] and trial.node not in other.pending() | set(other.hanging())

    def _order_again(self, trial: Trial, row: Row) -> None:
        """Nobody knows whether the other system has it; a person finds out that it has not."""
        if row.state == "waiting" and row.hold == "external":
            self._say(f"/api/v1/rescues/{row.pk}/take-over", "they have no such order")
        elif row.state == "held":
            trial.helped = self._say(f"/api/v1/rescues/{row.pk}/retry", "nobody has it")

    def _ask_again(self, trial: Trial, row: Row) -> None:
        """Nobody knows whether a request arrived; a person finds the old machine running, which nobody is deleting."""
        truth, node = self._product.sim_truth(trial.node), self._product.sim_node(trial.node)
        untouched = (truth["power"], truth["boot_id"]) == ("up", trial.boot)
        if untouched and "deletionTimestamp" not in node["metadata"]:
            self._say(f"/api/v1/rescues/{row.pk}/retry", "it did not arrive")

    def _approve(self, row: Row) -> None:
        """Programs approve nothing."""
        ((plan,),) = self._product.rows("SELECT plan_hash FROM rescue_rescue WHERE id = %s", row.pk)
        self._in_console(f"/rescues/{row.pk}/approve/", {"reason": "as asked", "plan_hash": plan})

    def _in_console(self, path: str, fields: dict[str, str]) -> None:
        """Sends a form as a person; again at the next look if a server was just struck."""
        try:
            if self._anna is None:
                anna = Person(self._product)
                anna.sign_in("anna", PASSWORD)
                self._anna = anna
            self._anna.post(path, fields)
        except HTTPError as error:
            if error.code != 409 and error.code < 500:  # 409: it was done a moment ago
                raise AssertionError(error.read().decode()) from error
        except (OSError, HTTPException):
            pass

    def _repair(self, trial: Trial) -> None:
        """Takes the repair one state further; the returned machine is validated once."""
        query = "SELECT id, state FROM repairs_repair WHERE node_name = %s AND state <> 'closed'"
        for number, state in self._product.rows(query, trial.node):
            done = self._say(f"/api/v1/repairs/{number}/{VERBS[state]}", "as agreed")
            if not done and state == "returned" and not trial.helped:
                wanted = {"cluster": "sim", "nodes": [trial.node], "profile": "light"}
                trial.helped = self._say("/api/v1/validations", "back from the vendor", **wanted)

    def _rebooted(self, trial: Trial) -> bool:
        """Returns whether the machine is back after the reboot by hand; requests it before, once."""
        if not trial.rebooted:
            trial.rebooted = True
            self._product.post_sim(f"/sim/nodes/{trial.node}/reboot", {})
        if len(self._product.sim_truth(trial.node)["boots"]) - 1 < PLANS[trial.plan].boots:
            return False
        machines = call("GET", self._product.sim + "/sim/nodes")[1]["nodes"]
        return any(row["name"] == trial.node and row["ready"] for row in machines)

    def ask(self, trial: Trial, act: str) -> bool:
        """Asks for this act on the node; returns whether the portal accepted it.

        With a key: a request that got no answer in time may still be carried out, and is repeated.
        """
        return self._say(f"/api/v1/nodes/sim/{trial.node}/{act}", "looked at", key=f"{act} {trial.node}")

    def _end_probation(self, trial: Trial) -> bool:
        return self._say(f"/api/v1/nodes/sim/{trial.node}/probation/end", "looked at")

    def _say(self, path: str, reason: str, *, key: str = "", **more: Any) -> bool:
        """Returns whether the portal accepted the request.

        The caller repeats it otherwise: a server may just have been struck, or the rescue has moved meanwhile (409).
        """
        headers = {"Idempotency-Key": key} if key else {}
        status, answer = self._product.post(path, {"reason": reason, **more}, **headers)
        assert status < 300 or status == 409 or status >= 500, answer
        return status < 300
