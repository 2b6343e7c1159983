"""Documents in the Atlassian Document Format (ADF) that Jira receives, and the table of the states that it reports.

https://developer.atlassian.com/cloud/jira/platform/apis/document/structure/
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kcover import reasons
from kcover.repairs.repairs import State
from kcover.values.quote import short_text

SEPARATOR: Final = ";"
EXAMPLE: Final = "In Progress=accepted; With vendor=in_repair; Done=returned"
# A Jira state never closes a repair: that needs a passed validation.
TARGETS: Final = (State.ACCEPTED, State.IN_REPAIR, State.RETURNED, State.REFUSED)


class StatesInvalid(reasons.ExplainedError):
    """The text is no table of states."""


def document(*paragraphs: str, items: Sequence[str] = ()) -> dict[str, Any]:
    """An ADF document: the paragraphs that have a text, then the items as a list."""
    content = [_paragraph(text) for text in paragraphs if text]
    if items:
        listed = [{"type": "listItem", "content": [_paragraph(item)]} for item in items]
        content.append({"type": "bulletList", "content": listed})
    return {"type": "doc", "version": 1, "content": content}


def _paragraph(text: str) -> dict[str, Any]:
    return {"type": "paragraph", "content": [{"type": "text", "text": text}]}


def texts(node: Any) -> str:
    """All text of an ADF document, joined by spaces."""
    if isinstance(node, list):
        return " ".join(found for one in node if (found := texts(one)))
    if not isinstance(node, Mapping):
        return ""
    own = node.get("text")
    return own if isinstance(own, str) else texts(node.get("content"))


def read_states(text: str) -> dict[str, State]:
    """The state of a repair for each state of an issue, by its name in lower case. Raises StatesInvalid."""
    found: dict[str, State] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(SEPARATOR))):
        name, equals, target = (part.strip() for part in piece.rpartition("="))
        if not equals or not name or not name.isprintable() or target not in TARGETS or name.casefold() in found:
            known = ", ".join(TARGETS)
            raise StatesInvalid(
                reasons.of("jira_states_invalid", piece=short_text(piece), known=known, example=EXAMPLE)
            )
        found[name.casefold()] = State(target)
    return found
