"""A worker that dies in the middle of a call to the cluster: nothing of it runs any more, not even error handling."""

from kcover_portal.rescue.step import lease
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import World


class Killed(BaseException):
    """``kill -9``."""


def kill_at(kube: FakeCluster, verb: str, *, call: int, after: bool, name: str | None = None) -> None:
    """The worker dies at the n-th call of a port verb (about that object), before or after its effect; once."""
    real, seen = getattr(kube, verb), []

    def dying(*args: object, **more: object) -> object:
        if name is not None and name not in args:
            return real(*args, **more)
        seen.append(args)
        if len(seen) != call:
            return real(*args, **more)
        if after:
            real(*args, **more)
        raise Killed

    setattr(kube, verb, dying)


def work(world: World) -> bool:
    """What workers do once; True if one of them died. Its lease runs out before the next one looks."""
    try:
        world.work()
    except Killed:
        world.now += lease.TIME
        world.sync()
        return True
    return False
