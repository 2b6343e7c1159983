"""What every section does: read its objects, make one, change one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

from django.conf import settings

from kcover.policy import modes
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.lib.errors import FieldError
from kcover_portal.operate.settings_file.document import Item, Secrets
from kcover_portal.runtime import queries as runtime

One = TypeVar("One", bound=Item)
REASON: Final = "import"  # of the entries in the audit log


class ItemInvalid(ValueError):
    """An object cannot be imported. ``path``: within the object, such as .settings.mode; the message says why."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.path = path


class LeftOut(Exception):
    """An object is not imported, for safety. The message says why."""


@dataclass(kw_only=True)
class Run:
    """One import. ``keep_modes``: modes that act, and settings that loosen a limit, are taken as they are.

    ``made``: the clusters that this import has made. ``notes``: what the operator must know or do. ``last``: what is
    done when every object is there.
    """

    actor: str
    now: datetime
    keep_modes: bool = False
    secrets: Secrets = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    last: list[Callable[[], None]] = field(default_factory=list)

    @property
    def by(self) -> dict[str, Any]:
        """The arguments of each service that say who acts, and when."""
        return {"actor": self.actor, "now": self.now}


class Section(Generic[One]):
    """Objects of one kind. ``name``: the field of the file; ``noun``: what one object is."""

    name: ClassVar[str]
    noun: ClassVar[str]

    def read(self) -> Sequence[One]:
        """All objects, in a stable order."""
        raise NotImplementedError

    def secrets(self, item: One) -> dict[str, Any]:
        """The values of an object's secrets, by name. Raises SecretUnreadable."""
        return {}

    def make(self, item: One, run: Run) -> None:
        """Makes an object that is not there. Raises ItemInvalid, LeftOut, and what its service raises."""
        raise NotImplementedError

    def change(self, item: One, before: One, run: Run) -> bool:
        """Makes an object as the file has it; returns whether anything was changed. Raises like ``make``."""
        raise NotImplementedError

    def is_own(self, item: One, run: Run) -> bool:
        """Returns whether this import has made the object, beside another one."""
        return False

    def given(self, item: One, run: Run) -> dict[str, Any]:
        """The values of the object's secrets that the file has."""
        return run.secrets.get(self.name, {}).get(item.key, {})


def cluster_named(name: str, path: str = ".cluster") -> Cluster | None:
    """The cluster of this name; None for "". Raises ItemInvalid."""
    if not name:
        return None
    found = Cluster.objects.filter(name=name).first()
    if found is None:
        raise ItemInvalid(path, f"there is no cluster {name[:100]!r}, and the file has none either")
    return found


def one_cluster(name: str) -> Cluster:
    """The cluster of this name. Raises ItemInvalid."""
    found = cluster_named(name)
    if found is None:
        raise ItemInvalid(".cluster", "name a cluster")
    return found


def acting(run: Run) -> list[str]:
    """The clusters that were there before, and in which the portal acts, at the latest once a pause ends."""
    whole = modes.strictest(settings.KCOVER_MODE, cluster_settings.lasting_mode(runtime.installation()))
    lasting = {
        row.name: modes.strictest(whole, fleet.own_mode(row, mode=cluster_settings.lasting_mode(row)))
        for row in Cluster.objects.exclude(name__in=run.made)
    }
    return [name for name, mode in lasting.items() if mode not in fleet.MODES_WITHOUT_WRITES]


def at(error: FieldError, below: str = "") -> ItemInvalid:
    """The error of a service, with its place in the object."""
    field_path = error.field.replace("/", ".")
    return ItemInvalid(f"{below}.{field_path}" if field_path else "", str(error))
