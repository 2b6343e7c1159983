"""The representations that ``Accept`` can request: whole objects, kubectl's tables, or metadata only."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from simulator.kubeapi import errors, history, resources, versions
from simulator.kubeapi.tables import table

Object = dict[str, Any]

PLAIN, TABLE, METADATA = "", "Table", "PartialObjectMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A requested representation: ``shape`` is PLAIN, TABLE or METADATA; ``version`` is the meta.k8s.io version of the
    last two.

    ``include``: what the rows of a table contain of their objects: ``None``, ``Metadata`` or ``Object``.
    """

    shape: str = PLAIN
    version: str = "v1"
    include: str = "Metadata"


def form(accept: str, *, include: str = "") -> Form:
    """The representation that an ``Accept`` header requests. Raises ``ApiError`` 406 if none is supported."""
    for clause in accept.split(",") if accept else ():
        media, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if media not in ("application/json", "application/*", "*/*"):
            continue
        shape = values.get("as", "").removesuffix("List")
        if shape in (TABLE, METADATA) and values.get("g") == "meta.k8s.io":
            return Form(shape=shape, version=values.get("v", "v1"), include=include or "Metadata")
        if not shape:
            return Form()
    if not accept:
        return Form()
    text = "only the following media types are accepted: application/json"
    raise errors.ApiError(406, "NotAcceptable", text)


class Renderer:
    """One kind, under one group version, in one representation."""

    def __init__(
        self, resource: resources.Resource, group: str, version: str, wanted: Form, now: Callable[[], datetime]
    ) -> None:
        self._resource = resource
        self._group = group
        self._version = version
        self._form = wanted
        self._now = now
        self._renamed = versions.renames(resource, group)
        shown = versions.api_version(group, version)
        self._head = f'{{"kind":"{resource.kind}","apiVersion":"{shown}",'.encode()

    def one(self, entry: history.ObjectVersion, *, header: bool = True) -> bytes:
        """One object. ``header`` is False for all but the first table of a watch, as kubectl expects."""
        if self._form.shape == TABLE:
            return msgspec.json.encode(self._table([entry], {"resourceVersion": str(entry.version)}, header=header))
        if self._form.shape == METADATA:
            return msgspec.json.encode(self._metadata(entry))
        return self._head + self._bare(entry)[1:]

    def bookmark(self, version: int, *, initial: bool = False) -> bytes:
        """An object with a resource version and nothing else."""
        kind, shown = self._resource.kind, versions.api_version(self._group, self._version)
        if self._form.shape != PLAIN:
            kind, shown = self._form.shape, f"meta.k8s.io/{self._form.version}"
        metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return msgspec.json.encode({"kind": kind, "apiVersion": shown, "metadata": metadata})

    def many(self, entries: Sequence[history.ObjectVersion], metadata: Object) -> bytes:
        """A list with its ``metadata`` (resourceVersion, continue, remainingItemCount)."""
        if self._form.shape == TABLE:
            return msgspec.json.encode(self._table(entries, metadata, header=True))
        if self._form.shape == METADATA:
            items = [self._metadata(entry) for entry in entries]
            shown = f"meta.k8s.io/{self._form.version}"
            listed = {"kind": f"{METADATA}List", "apiVersion": shown, "metadata": metadata, "items": items}
            return msgspec.json.encode(listed)
        head: Object = {
            "kind": f"{self._resource.kind}List",
            "apiVersion": versions.api_version(self._group, self._version),
            "metadata": metadata,
        }
        if self._resource.typed:
            bodies: Iterable[bytes] = (self._bare(entry) for entry in entries)
        else:
            bodies = (self._head + entry.body[1:] for entry in entries)
        return b"".join((msgspec.json.encode(head)[:-1], b',"items":[', b",".join(bodies), b"]}"))

    def _bare(self, entry: history.ObjectVersion) -> bytes:
        """The object's JSON without kind and apiVersion; encoded again if the version renames fields."""
        if not self._renamed:
            return entry.body
        obj = versions.to_response(self._resource, self._group, self._version, entry.obj)
        return msgspec.json.encode({key: value for key, value in obj.items() if key not in ("apiVersion", "kind")})

    def _metadata(self, entry: history.ObjectVersion) -> Object:
        version = f"meta.k8s.io/{self._form.version}"
        return {"kind": METADATA, "apiVersion": version, "metadata": entry.obj["metadata"]}

    def _table(self, entries: Sequence[history.ObjectVersion], metadata: Object, *, header: bool) -> Object:
        rows = []
        now = self._now()
        for entry in entries:
            row: Object = {"cells": table.cells(self._resource, entry.obj, now=now)}
            if self._form.include == "Metadata":
                row["object"] = self._metadata(entry)
            elif self._form.include == "Object":
                row["object"] = versions.to_response(self._resource, self._group, self._version, entry.obj)
            rows.append(row)
        return {
            "kind": TABLE,
            "apiVersion": f"meta.k8s.io/{self._form.version}",
            "metadata": metadata,
            "columnDefinitions": table.columns(self._resource) if header else [],
            "rows": rows,
        }
