"""The proofs of rescues that move training jobs are valid, and the verifier knows every action of the core."""

from datetime import timedelta

import pytest

from kcover import actions
from kcover.jobs import checkpoint_query
from kcover_portal.workloads.training_jobs import CHECKPOINT, NOTIFY
from tests import proofs
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, POLICY, add_job
from tests.portal.rescue.world import NODE, World
from tests.proof_verifier import verifier


def test_the_verifier_has_the_same_actions_in_the_same_order() -> None:
    assert list(verifier.ORDER) == [spec.name for spec in actions.in_order()]
    assert set(verifier.TAKES_AWAY) == actions.names(lambda spec: spec.takes_work_away)
    asked_later = (actions.Stage.KEEP_AWAY, actions.Stage.NOTIFY, actions.Stage.HAND_OVER)
    harmless = actions.names(lambda spec: spec.place[0] in asked_later) - {"label"}  # controllers may act on a label
    assert set(verifier.HARMLESS) == harmless
    assert set(verifier.ISOLATES) == actions.names(lambda spec: spec.isolates)
    assert verifier.NAMES.items() <= {
        (spec.policy.name, spec.name) for spec in actions.ACTIONS.values() if spec.policy is not None
    }


@pytest.mark.django_db
@pytest.mark.parametrize("action", ["restartJobs", "stopJobs", "restartJobs dead", "restartJobs asked"])
def test_the_proof_of_a_rescue_that_moves_a_job_is_valid(action: str) -> None:
    name, _, how = action.partition(" ")
    dead, asked = how == "dead", f"checkpointQuery: {checkpoint_query.EXAMPLE!r}" if how == "asked" else ""
    moved = f"{{name: {name}}}, {{name: drain, attribute: {{checkpointWait: 3min, kueueTogether: 'true', {asked}}}}}"
    world = World(policy=POLICY.replace("{name: restartJobs}", moved).replace("62", "63"), nodes=2, fake=WithOperators)
    try:
        world.cluster.guards = GUARDS
        world.cluster.save()
        add_job(world, "llm", NODE, "gpu-2")
        annotations = {NOTIFY: "owners", **({} if dead else {CHECKPOINT: "2026-11-21T07:00:00Z"})}
        world.kube.objects.merge("PyTorchJob", "train", "llm", {"metadata": {"annotations": annotations}})
        world.fault(63)
        world.kube.set_ready(NODE, not dead)
        for _ in range(3):
            world.pass_time()
        if dead:
            world.report(boot_id="after-the-crash")
            world.now += timedelta(seconds=1)
        rescue = world.until("succeeded", seconds=20)
        assert proofs.broken_claim(rescue) == ""
    finally:
        world.uninstall()
