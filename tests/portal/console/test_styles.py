"""Tabler's stylesheet as the pages get it: the rules that they use, and no others."""

import re
from pathlib import Path

import tinycss2

ROOT = Path(__file__).parents[3]
WHOLE = ROOT / "tools" / "vendor" / "tabler.min.css"
SERVED = ROOT / "static" / "console" / "tabler.css"
ELEMENT = re.compile(r"[a-z0-9*:-]+")


def selectors(text: str) -> set[str]:
    """The selectors of all rules, also of those inside of media queries."""
    found, waiting = set[str](), list(tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True))
    for node in waiting:
        if node.type == "qualified-rule":
            found |= {part.strip() for part in tinycss2.serialize(node.prelude).split(",")}
        elif node.lower_at_keyword in ("media", "supports"):
            waiting += tinycss2.parse_rule_list(node.content, skip_comments=True, skip_whitespace=True)
    return found


def test_the_pages_get_what_they_use_and_nothing_else_of_it() -> None:
    whole, served = selectors(WHOLE.read_text(encoding="utf-8")), selectors(SERVED.read_text(encoding="utf-8"))
    assert served < whole
    assert {".btn", ".btn-primary", ".card", ".form-control", "body", ":root"} <= served
    assert whole & {".carousel", ".accordion", ".bg-purple-lt"} == {".carousel", ".accordion", ".bg-purple-lt"}
    assert not served & {".carousel", ".accordion", ".bg-purple-lt"}
    assert {name for name in whole if ELEMENT.fullmatch(name)} <= served, "elements need no class"
