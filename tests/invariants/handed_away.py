"""Machines that others have: the system that takes nodes offline, and the repair desk (invariants 10 and 52)."""

import contextlib
import random
from collections import Counter
from typing import Any

from django.test import override_settings

from kcover.repairs import repairs
from kcover_portal.checks.services import validations
from kcover_portal.repairs import services as desk
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step.drivers import agent
from tests.invariants.observed_cluster import must
from tests.portal.rescue.other_system import OtherSystem

SECRET = "shared"
TAKES = (204, 500)  # answers of a system that has taken the order; after 500 nobody can be sure
VERBS = {
    repairs.State.REPORTED: repairs.Move.ACCEPT,
    repairs.State.REFUSED: repairs.Move.CLOSE,
    repairs.State.ACCEPTED: repairs.Move.HAND_OVER,
    repairs.State.IN_REPAIR: repairs.Move.RETURN,
    repairs.State.RETURNED: repairs.Move.CLOSE,
    repairs.State.VALIDATING: repairs.Move.CLOSE,
}


class HandedAway:
    """The other system of a bed. It answers over HTTP, as the real ones do; nothing of it runs by itself."""

    def __init__(self) -> None:
        self._settings = override_settings(KCOVER_OUTGOING_HOSTS=("127.0.0.1",))
        self._settings.enable()
        self._server = OtherSystem(SECRET)
        self.url = self._server.url
        self.taken: Counter[str] = Counter()  # orders by delivery
        self._seen = 0

    def stop(self) -> None:
        self._server.stop()
        self._settings.disable()

    def behave(self, status: int, *, cut: bool = False) -> None:
        """How it answers from now on. ``cut``: it takes the order and cuts the connection."""
        self._server.statuses, self._server.cut = [status], cut

    def check(self) -> None:
        """A node is handed over once, however often its worker dies."""
        for order in self._server.asked[self._seen :]:
            if self._server.cut or self._server.statuses[0] in TAKES:
                self.taken[order["delivery"]] += 1
        self._seen = len(self._server.asked)
        twice = [delivery for delivery, count in self.taken.items() if count > 1]
        must(not twice, 52, f"ordered twice: {twice}")
        rows = (
            Repair.objects.exclude(rescue=None).exclude(state="closed").values_list("cluster", "node_name", "part_slot")
        )
        again = [about for about, count in Counter(rows).items() if count > 1]
        must(not again, 52, f"repairs that are open twice: {again}")


def call_back(away: HandedAway, *, chance: random.Random, now: Any, outcome: str = "") -> None:
    """The other system says that it is done, or that it cannot repair the machine."""
    for rescue in _with_other_system():
        key = agent.key_of(_handover(rescue))
        if away.taken[key]:
            said = outcome or chance.choice(("done", "done", "failed"))
            with contextlib.suppress(services.RescueRefused):
                services.callback(rescue, said, delivery=key, now=now)


def take_over(*, now: Any) -> None:
    """An operator takes every node back from the other system."""
    for rescue in _with_other_system():
        with contextlib.suppress(services.RescueRefused):
            services.take_over(rescue, actor="user:ann", reason="so", now=now)


def _with_other_system() -> list[Rescue]:
    return list(Rescue.objects.filter(hold=Rescue.Hold.EXTERNAL, state="waiting").order_by("pk"))


def _handover(rescue: Rescue) -> Step:
    return rescue.steps.filter(name="offline").latest("index")


def go_on(row: Repair, move: repairs.Move, *, now: Any) -> None:
    """A person takes a repair further, if it is possible now."""
    with contextlib.suppress(desk.RepairRefused):
        desk.act(row, move, actor="user:ann", reason="so", now=now)


def validate(row: Repair, *, now: Any) -> None:
    """A person asks for the validation of a machine that is back."""
    if row.node is not None and row.node.in_cluster:
        with contextlib.suppress(validations.ValidationRefused):
            validations.begin(row.cluster, [row.node], profile="light", actor="user:ann", now=now)


def finish(away: HandedAway, *, chance: random.Random, now: Any) -> None:
    """What others have comes to its end: nodes are handed back, and each repair takes its next step."""
    call_back(away, chance=chance, now=now, outcome="done")
    for rescue in _with_other_system():
        if not away.taken[agent.key_of(_handover(rescue))]:
            with contextlib.suppress(services.RescueRefused):
                services.take_over(rescue, actor="user:ann", reason="they have no such order", now=now)
    desk.look_at_validations(now=now)
    for row in Repair.objects.exclude(state="closed").select_related("cluster", "node").order_by("pk"):
        state = repairs.State(row.state)
        if state is repairs.State.RETURNED and chance.random() < 0.3:
            validate(row, now=now)
        go_on(row, repairs.Move.ACCEPT if state is repairs.State.REFUSED else VERBS[state], now=now)
