"""The storage provisioner: binds a PersistentVolumeClaim a moment after its creation if its storage class exists."""

from simulator.kubeapi import history, store
from simulator.world.agenda import Agenda

CLASSES = ("", "standard")  # "" is the default class
_DELAY_SECONDS = 0.3


class PvcBinder:
    def __init__(self, objects: store.Store, agenda: Agenda) -> None:
        self._objects, self._agenda = objects, agenda

    def changed(self, change: history.ObjectChange) -> None:
        if change.kind == history.ADDED and change.object["spec"].get("storageClassName", "") in CLASSES:
            key = store.key_of(change.object)
            self._agenda.after(_DELAY_SECONDS, lambda: self._bind(key))

    def _bind(self, key: tuple[str, str]) -> None:
        claim = self._objects.find("PersistentVolumeClaim", *key)
        if claim is not None:
            self._objects.update("PersistentVolumeClaim", {**claim, "status": {"phase": "Bound"}})
