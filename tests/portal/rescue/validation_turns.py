"""Validations in engine tests: what workers and the node's agent do with them."""

from kcover_portal.checks import queries as checks, services as check_runs
from kcover_portal.checks.services import validations
from tests.portal.rescue import agents
from tests.portal.rescue.world import NODE, World


def look(world: World) -> None:
    """What workers do with check runs and validations that are due."""
    for pk in checks.running():
        check_runs.advance(pk, now=world.now)
    for row in checks.due_validations():
        if row.run_id is None:
            validations.start(row.pk, now=world.now)
            row.refresh_from_db()
            if row.run_id is not None:
                check_runs.advance(row.run_id, now=world.now)
        else:
            validations.conclude(row.run_id, now=world.now)


def turn(world: World, seconds: float = 1) -> None:
    world.pass_time(seconds)
    world.report()
    look(world)


def answer(world: World, *, node: str = NODE, **statuses: str) -> None:
    """The agent answers with a pass of each check, except for the given statuses."""
    [command] = [one for one in agents.commands("run_check", node) if one.state == "offered"]
    results = [{"name": name, "status": statuses.get(name, "pass")} for name in command.args["checks"]]
    agents.answers(world, command, checks=results)
    look(world)
    look(world)
    world.work()
