"""The engine runs every action that the core describes, and no other."""

from kcover import actions
from kcover_portal.rescue.actions import registry


def test_the_engine_has_every_action_of_the_core() -> None:
    assert registry.ACTIONS.keys() == actions.ACTIONS.keys()
