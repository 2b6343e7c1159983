"""Events that several tests use: a fault that recurs too often, a request that needs two approvals."""

from kcover_portal.fleet.services import cluster_settings
from kcover_portal.policies import services as policies
from tests.portal.rescue.world import World


def a_fault_that_comes_back(world: World) -> None:
    """Healed once; then it is there again, of which the cluster's guard allows none."""
    cluster_settings.set_guards(world.cluster, {"repeats": {"limit": 1}}, actor="test", reason="", now=world.now)
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")
    world.pass_time(60)
    world.fault(62)


def a_question_for_two(world: World, policy: str) -> None:
    """A rescue waits for the yes of two; ``policy`` asks one."""
    policies.delete("heal", author="test", reason="", now=world.now)
    two = policy.replace("{required: true}", "{required: true, approvers: 2}")
    policies.apply(two, author="test", reason="", now=world.now)
    world.fault(62)
    world.work()
