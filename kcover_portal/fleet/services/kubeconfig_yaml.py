"""The YAML of a kubeconfig that a stranger may have written, in bounded time and memory.

kubectl writes plain YAML. Anchors, aliases and merge keys can make a few hundred bytes cost hours. Tags and numbers run
constructors that raise arbitrary errors, or take minutes for a long number. None of these is read here.
"""

from typing import Any, Final

import yaml

MAX_DEPTH: Final = 32
MAX_EVENTS: Final = 50_000  # of the parser: one for each scalar, two for each mapping and list
UNREADABLE: Final = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
READ: Final = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")


class Refused(Exception):
    """The YAML has an anchor, an alias or a tag, or too many or too deep values; ``line`` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


class _Loader(yaml.CSafeLoader):
    """Reads booleans and null; every other plain value is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in READ]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def load(raw: bytes) -> Any:
    """Returns the content of one document. Raises Refused, or one of UNREADABLE."""
    depth = 0
    # The events come first: the composer of libyaml overflows the stack on a text of many brackets.
    for number, event in enumerate(yaml.parse(raw, Loader=yaml.CSafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        named = getattr(event, "anchor", None) is not None or _is_tagged(event)
        if named or depth > MAX_DEPTH or number > MAX_EVENTS:
            raise Refused(event.start_mark.line + 1 if event.start_mark is not None else 1)
    return yaml.load(raw, Loader=_Loader)  # nosec B506


def _is_tagged(event: yaml.Event) -> bool:
    return isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None
