#!/usr/bin/env python3
"""Build ``static/console/tabler.css``: of Tabler's stylesheet, only the rules that a page of the console can match.

``python tools/trim_css.py`` writes it; ``--verify`` says whether it is what the sources need now. A class counts as
used if its name is a word anywhere in a template, a script or the console's Python, or begins or ends like one that is
put together there (``tone-{{ state }}``). So a rule may stay that no page needs, but no rule goes that one needs.
"""

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tinycss2

ROOT = Path(__file__).resolve().parent.parent
WHOLE = ROOT / "tools" / "vendor" / "tabler.min.css"
TRIMMED = ROOT / "static" / "console" / "tabler.css"
SOURCES = {"templates": "*.html", "static/console": "*.js", "kcover_portal/console": "*.py"}

WORD = re.compile(r"[A-Za-z0-9_-]+")
PUT_TOGETHER = re.compile(r"(?<![\w-])([a-z][a-z0-9-]*-)(?=\{)|\}(-[a-z][a-z0-9-]*)")
NESTED = ("media", "supports")  # rules with rules inside
LICENCE = re.compile(r"/\*!.*?\*/", re.DOTALL)


def trimmed() -> str:
    """The stylesheet with the rules that the sources can match, under the licence of the whole one."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in _sources())
    words = set(WORD.findall(text))
    begins, ends = ({part for part in found if part} for found in zip(*PUT_TOGETHER.findall(text), strict=True))

    def is_used(name: str) -> bool:
        return name in words or name.startswith(tuple(begins)) or name.endswith(tuple(ends))

    whole = WHOLE.read_text(encoding="utf-8")
    licence = LICENCE.search(whole)
    assert licence is not None  # tools/vendor_frontend.py has looked for it
    nodes = tinycss2.parse_stylesheet(whole, skip_comments=True, skip_whitespace=True)
    return "\n".join([licence[0], *_rules(nodes, is_used), ""])


def _sources() -> list[Path]:
    return sorted(path for folder, names in SOURCES.items() for path in (ROOT / folder).rglob(names))


def _rules(nodes: Iterable[Any], is_used: Callable[[str], bool]) -> Iterator[str]:
    for node in nodes:
        if node.type == "qualified-rule":
            kept = [part for part in _selectors(node.prelude) if all(map(is_used, _classes(part)))]
            if kept:
                yield f"{','.join(map(_text, kept))}{{{_text(node.content)}}}"
        elif node.lower_at_keyword in NESTED:
            inside = tinycss2.parse_rule_list(node.content, skip_comments=True, skip_whitespace=True)
            if kept := list(_rules(inside, is_used)):
                yield f"@{node.at_keyword}{tinycss2.serialize(node.prelude)}{{{''.join(kept)}}}"
        else:
            yield _text([node])


def _selectors(prelude: Sequence[Any]) -> Iterator[list[Any]]:
    """The parts between the commas. Those inside of brackets, as in ``:is(a, b)``, are tokens of their own."""
    part: list[Any] = []
    for token in prelude:
        if token == ",":
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _classes(selector: Sequence[Any]) -> Iterator[str]:
    """The classes that an element needs. ``:not(.a)`` and ``:is(.a, .b)`` name none that it must have."""
    for dot, name in itertools.pairwise(selector):
        if dot == "." and name.type == "ident":
            yield name.value


def _text(tokens: Sequence[Any]) -> str:
    return tinycss2.serialize(tokens).strip()


def main() -> int:
    """Writes or verifies; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verify", action="store_true", help="only compare the file with what the sources need")
    options = parser.parse_args()
    if not options.verify:
        TRIMMED.write_text(trimmed(), encoding="utf-8")
    elif TRIMMED.read_text(encoding="utf-8") != trimmed():
        print(f"{TRIMMED.relative_to(ROOT)} is not what the pages need now. Run make styles.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
