"""Change rules inside a policy's text, so that everything else stays as its author wrote it.

Only the values that differ are written again: comments, order and style of the other lines are kept. The result is read
again and compared with what was wanted; a text that cannot be changed safely is refused.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from kcover import reasons
from kcover_portal.policies.services import yaml_reader

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|(?:[0-9]+day)?(?:[0-9]+h)?(?:[0-9]+min)?|[0-9]+%")
COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)

Edit = tuple[int, int, str]  # from, to, the text instead


class Unchangeable(reasons.ExplainedError, ValueError):
    """The text cannot be changed without loss; the reason says why."""


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule as it is written. ``document`` and ``index`` count from 0."""

    document: int
    index: int
    policy: str
    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The policy and the rule's place in it, counted from 1."""
        return f"{self.policy}#{self.index + 1}"


def rules(text: str) -> list[RuleText]:
    """Returns the rules of the text in order, also of invalid policies. Raises Unchangeable if it is no YAML."""
    found: list[RuleText] = []
    for number, content in enumerate(_read(text)):
        spec, metadata = _mapping(_mapping(content).get("spec")), _mapping(_mapping(content).get("metadata"))
        listed = spec.get("rules")
        for index, rule in enumerate(listed if isinstance(listed, list) else []):
            found.append(RuleText(number, index, str(metadata.get("name", "")), _mapping(rule)))
    return found


def change(text: str, rule: RuleText, wanted: Mapping[str, Any]) -> str:
    """Returns the text with these keys of the rule; None removes a key. Raises Unchangeable."""
    documents = _read(text)
    nodes = _nodes(text, documents)
    old = documents[rule.document]["spec"]["rules"][rule.index]
    if not isinstance(old, dict):
        raise Unchangeable(reasons.of("rule_text_style"))
    new = {key: value for key, value in {**old, **wanted}.items() if value is not None}
    target = copy.deepcopy(documents)
    target[rule.document]["spec"]["rules"][rule.index] = _merge(old, new)
    node = _child(_child(_child(nodes[rule.document], "spec"), "rules"), rule.index)
    return _checked(_apply(text, _edits(text, node, old, _merge(old, new))), target)


def add(text: str, document: int, rule: Mapping[str, Any]) -> str:
    """Returns the text with one more rule at the end of a policy. Raises Unchangeable."""
    documents = _read(text)
    nodes = _nodes(text, documents)
    old = documents[document]["spec"]["rules"]
    target = copy.deepcopy(documents)
    target[document]["spec"]["rules"].append(dict(rule))
    node = _child(_child(nodes[document], "spec"), "rules")
    if node.flow_style or not old:
        raise Unchangeable(reasons.of("rule_text_brackets"))
    pad = " " * node.start_mark.column
    lines = "".join(_lines(f"{pad}  ", key, value) for key, value in rule.items())
    written = f"{pad}- {lines[len(pad) + 2 :]}"
    return _checked(_apply(text, [_insertion(text, _end(node), written)]), target)


def _read(text: str) -> list[Any]:
    try:
        documents, problems = yaml_reader.read(yaml_reader.decode(text))
    except yaml_reader.Unreadable as error:
        raise Unchangeable(reasons.of("rule_text_unreadable", line=error.problem.line)) from error
    if problems:
        raise Unchangeable(reasons.of("rule_text_unreadable", line=problems[0].line))
    return [document.content for document in documents]


def _nodes(text: str, documents: list[Any]) -> list[Any]:
    """The nodes of the documents with their places. The text was read before, so it is not too deep."""
    if any(getattr(event, "anchor", None) is not None for event in yaml.parse(text, Loader=yaml.CSafeLoader)):
        raise Unchangeable(reasons.of("rule_text_aliases"))
    nodes = [node for node in yaml.compose_all(text, Loader=yaml.CSafeLoader) if not _is_empty(node)]
    if len(nodes) != len(documents):
        raise Unchangeable(reasons.of("rule_text_style"))
    return nodes


def _is_empty(node: Any) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and yaml_reader.NULL.fullmatch(node.value) is not None)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _child(node: Any, key: str | int) -> Any:
    if isinstance(key, int):
        return node.value[key]
    return next(value for name, value in node.value if name.value == key)


def _merge(old: Any, new: Any) -> Any:
    """The new value in the old order: what is in both keeps its place, and the rest follows."""
    if isinstance(old, dict) and isinstance(new, dict):
        kept = {key: _merge(old[key], new[key]) for key in old if key in new}
        return kept | {key: value for key, value in new.items() if key not in old}
    if isinstance(old, list) and isinstance(new, list):
        added = {_identity(item): item for item in new}
        kept_items = [_merge(item, added.pop(_identity(item))) for item in old if _identity(item) in added]
        return [*kept_items, *added.values()]
    return new


def _identity(item: Any) -> str:
    """Actions are the same if they have the same name."""
    named = item.get("name") if isinstance(item, dict) else None
    return json.dumps(named if named is not None else item, sort_keys=True, ensure_ascii=False)


def _edits(text: str, node: Any, old: Any, new: Any) -> Iterator[Edit]:
    """What to write so that the node says ``new``."""
    if old == new:
        return
    block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    if block and new and isinstance(node, yaml.MappingNode) and isinstance(new, dict):
        yield from _of_mapping(text, node, old, new)
    elif block and new and isinstance(node, yaml.SequenceNode) and isinstance(new, list):
        yield from _of_sequence(text, node, old, new)
    elif block:
        raise Unchangeable(reasons.of("rule_text_style"))
    else:
        start, end = node.start_mark.index, _end(node)
        if isinstance(node, yaml.CollectionNode) and COMMENT.search(text[start:end]):
            raise Unchangeable(reasons.of("rule_text_brackets"))
        yield start, end, _flow(new) if start != end else f" {_flow(new)}"


def _of_mapping(text: str, node: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Edit]:
    pad = " " * node.start_mark.column
    fresh = [key for key in new if key not in old]
    after = _end(node.value[-1][1])
    for number, (key, value) in enumerate(node.value):
        gone = key.value not in new
        if not gone and _is_rewritten(value, new[key.value], old[key.value]):
            gone = True
            fresh.append(key.value)
        if gone:
            following = node.value[number + 1][0] if number + 1 < len(node.value) else None
            yield _removal(text, key.start_mark.index, _end(value), following)
        else:
            yield from _edits(text, value, old[key.value], new[key.value])
        if key.value == "actions" and number > 0:
            after = _end(node.value[number - 1][1])  # what is new stands before the actions
    if fresh:
        yield _insertion(text, after, "".join(_lines(pad, key, new[key]) for key in fresh))


def _is_rewritten(node: Any, new: Any, old: Any) -> bool:
    """Whether a block must be replaced as a whole, because it becomes empty or something of another kind."""
    if old == new or not isinstance(node, yaml.CollectionNode) or node.flow_style:
        return False
    return not new or not isinstance(new, dict if isinstance(node, yaml.MappingNode) else list)


def _of_sequence(text: str, node: Any, old: list[Any], new: list[Any]) -> Iterator[Edit]:
    pad = " " * node.start_mark.column
    wanted = {_identity(item): item for item in new}
    known = {_identity(item) for item in old}
    for item, present in zip(node.value, old, strict=True):
        if _identity(present) in wanted:
            yield from _edits(text, item, present, wanted[_identity(present)])
        else:
            yield _removal(text, text.rindex("-", 0, item.start_mark.index), _end(item), None)
    fresh = [item for item in new if _identity(item) not in known]
    if fresh:
        yield _insertion(text, _end(node), "".join(f"{pad}- {_flow(item)}\n" for item in fresh))


def _removal(text: str, start: int, end: int, following: Any) -> Edit:
    """Removes the lines of a value; of the first key of a list entry only up to the next key, which takes its place."""
    line, stop = text.rfind("\n", 0, start) + 1, _line_end(text, end)
    if not text[line:start].strip():
        return line, stop, ""
    if following is None or COMMENT.search(text[end : following.start_mark.index]):
        raise Unchangeable(reasons.of("rule_text_style"))
    return start, following.start_mark.index, ""


def _insertion(text: str, end: int, lines: str) -> Edit:
    """Inserts lines after the line in which a value ends."""
    at = _line_end(text, end)
    return at, at, lines if text[at - 1] == "\n" else "\n" + lines


def _line_end(text: str, end: int) -> int:
    """The beginning of the line after a value that ends here."""
    if end > 0 and text[end - 1] == "\n":
        return end
    found = text.find("\n", end)
    return len(text) if found < 0 else found + 1


def _end(node: Any) -> int:
    """The end of a value. The mark of a block is behind the comments that follow it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return end


def _apply(text: str, edits: Iterator[Edit] | list[Edit]) -> str:
    """The text with all edits. Where several begin, removals come after insertions."""
    for start, end, written in sorted(edits, key=lambda edit: (edit[0], edit[1]), reverse=True):
        text = text[:start] + written + text[end:]
    return text


def _checked(text: str, target: list[Any]) -> str:
    if _read(text) != target:
        raise Unchangeable(reasons.of("rule_text_style"))
    return text


def _lines(pad: str, key: str, value: Any) -> str:
    """A key and its value, each action on a line of its own."""
    if key == "actions" and value:
        return f"{pad}{key}:\n" + "".join(f"{pad}  - {_flow(item)}\n" for item in value)
    return f"{pad}{key}: {_flow(value)}\n"


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _is_plain(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_plain(value: str) -> bool:
    special = (yaml_reader.NULL, yaml_reader.TRUE, yaml_reader.FALSE, yaml_reader.READ_DIFFERENTLY)
    return bool(PLAIN.fullmatch(value)) and not any(pattern.fullmatch(value) for pattern in special)
