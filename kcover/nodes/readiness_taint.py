"""The readiness taint: it keeps work from a node that has not passed its burn-in.

Kubelets register with it, or the portal adds it to a new machine. It is in no marks, because rescues for other causes
must not remove it: only a passed burn-in or a person does.
"""

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

KEY: Final = "kcover.io/not-ready"
TAINT: Final = (KEY, "", "NoSchedule")  # key, value, effect: what the portal adds. Kubelets may use others.


class _Taint(Protocol):
    @property
    def key(self) -> str: ...


T = TypeVar("T", bound=_Taint)


def among(taints: Iterable[T]) -> tuple[T, ...]:
    """The readiness taints of a node, whatever their value and effect."""
    return tuple(taint for taint in taints if taint.key == KEY)
