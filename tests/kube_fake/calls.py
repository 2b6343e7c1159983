"""Records the calls of a fake cluster, and makes chosen calls fail before or after their work."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from kcover_portal.kube import errors
from tests.kube_fake.outside_changes import OutsideChanges


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of a port verb. ``wrote``: it reached a request that changes the cluster."""

    verb: str
    kind: str
    namespace: str
    name: str
    wrote: bool = False


@dataclass(slots=True, kw_only=True)
class _Failure:
    verb: str
    error: errors.KubeError
    times: int
    after: bool
    name: str | None


class Recorder(OutsideChanges):
    """The cluster with a record of the port's calls."""

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        super().__init__(clock=clock)
        self.calls: list[Call] = []
        self._failures: list[_Failure] = []

    def fail(
        self, verb: str, error: errors.KubeError, *, times: int = 1, after: bool = False, name: str | None = None
    ) -> None:
        """Makes the next ``times`` calls of a verb (for that object) raise; ``after``: only once the work is done."""
        self._failures.append(_Failure(verb=verb, error=error, times=times, after=after, name=name))

    def called(self, verb: str, *, name: str | None = None) -> list[Call]:
        """Returns the calls of a verb so far (for that object)."""
        return [call for call in self.calls if call.verb == verb and name in (None, call.name)]

    @property
    def writes(self) -> list[Call]:
        """The calls that changed the cluster or tried to."""
        return [call for call in self.calls if call.wrote]

    @contextlib.contextmanager
    def call(self, verb: str, kind: str, name: str, *, namespace: str = "") -> Iterator[Call]:
        """Wraps the work of one port verb. Raises the failure planned for it, if any."""
        call = Call(verb=verb, kind=kind, namespace=namespace, name=name)
        with self.objects.changed:
            self.calls.append(call)
            failure = next((f for f in self._failures if f.verb == verb and f.name in (None, name)), None)
            if failure is not None:
                failure.times -= 1
                if failure.times == 0:
                    self._failures.remove(failure)
        if failure is not None and not failure.after:
            raise failure.error
        yield call
        if failure is not None:
            raise failure.error
