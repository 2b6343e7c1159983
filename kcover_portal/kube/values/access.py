"""Rights in a cluster."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource; ``resource`` may have a subresource (pods/eviction). ``namespace`` "": in all of them.

    The text is what ``kubectl auth can-i`` takes.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        resource, slash, part = self.resource.partition("/")
        whole = f"{resource}.{self.group}" if self.group else resource
        place = f" -n {self.namespace}" if self.namespace else ""
        return f"{self.verb} {whole}{slash}{part}{place}"
