"""Names in Kubernetes: of namespaced objects, and the keys and values of labels and taints."""

import re
from dataclasses import dataclass
from typing import Self

LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True, slots=True, order=True)
class ObjectName:
    """The namespace and name of an object. Only this class writes and reads ``namespace/name``."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The name that ``str`` wrote. Raises ValueError for a text without a slash."""
        namespace, slash, name = text.partition("/")
        if not slash:
            raise ValueError(f"{text!r} must be namespace/name")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
