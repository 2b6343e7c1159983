"""The input of a driver, and its answers."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from kcover import reasons
from kcover_portal.kube import port
from kcover_portal.lib import outgoing


class Power(StrEnum):
    """The power of a machine; OTHER: it is changing, or unknown."""

    ON = "on"
    OFF = "off"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine by its controller. ``url``: the base address; ``system``: its id there, "" if there is only one.

    ``seconds``: for one look, and for one request. ``verify``: its certificate. ``cluster``: of a driver whose objects
    are in the node's cluster; it has no address.
    """

    url: str
    username: str
    password: str
    system: str = ""
    seconds: float = 10.0
    verify: bool = True
    cluster: port.Cluster | None = None

    def __repr__(self) -> str:
        return f"Machine({self.url!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a controller says. ``target``: where the power is switched; ``kinds``: the requests that it accepts there.

    None: it does not say which.
    """

    power: Power
    uuid: str = ""
    serial: str = ""
    maker: str = ""
    model: str = ""
    target: str = ""
    kinds: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """The result of a request. Not ``taken`` and not ``unclear``: it had no effect; ``later``: it may have one later.

    ``unclear``: it may have been carried out.
    """

    taken: bool = False
    unclear: bool = False
    later: bool = False
    reason: reasons.Reason


def of_silence(silence: outgoing.NoResponse) -> Switched:
    """The result of a request that nobody answered: unclear if it may have arrived."""
    return Switched(unclear=silence.arrived, later=not silence.arrived, reason=silence.reason)


def of_answer(status: int, *, host: str, later: Collection[int]) -> Switched:
    """The result of a request by the status of its answer. ``later``: those after which another attempt may succeed."""
    answered = reasons.of("host_answered", host=host, status=str(status))
    if status in later:
        return Switched(later=True, reason=answered)
    return Switched(taken=200 <= status < 300, unclear=status >= 500, reason=answered)


class Unreadable(reasons.ExplainedError):
    """The controller gave no usable answer. ``lasting``: another attempt gives the same."""

    def __init__(self, reason: reasons.Reason, *, lasting: bool = False) -> None:
        super().__init__(reason)
        self.lasting = lasting
