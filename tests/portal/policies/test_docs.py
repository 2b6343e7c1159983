"""The policies in the manual are what the portal reads."""

import re

import pytest
from django.conf import settings

from kcover.actions import in_policies
from kcover.plans import plan
from kcover.policy import document
from kcover_portal.policies.services import yaml_reader

BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MANUAL = settings.BASE_DIR / "docs" / "operations"


def policies(pages: str = "*.md") -> list[document.Policy | document.StandbyPolicy]:
    found = []
    for text in BLOCK.findall("".join(page.read_text(encoding="utf-8") for page in sorted(MANUAL.rglob(pages)))):
        if "kind: RescuePolicy" not in text and "kind: WarmStandbyPolicy" not in text:
            continue  # the settings of another system
        documents, problems = yaml_reader.read(text)
        assert problems == []
        found += [document.read(one.content) for one in documents]
    return found


def test_every_policy_of_the_manual_is_one() -> None:
    assert [one.kind for one in policies()] == [document.RESCUE, document.RESCUE, document.STANDBY]


def test_the_manual_shows_every_key_of_a_rule() -> None:
    [rule] = next(one.rules for one in policies("policies.md") if isinstance(one, document.Policy))
    plain = document.Rule(index=0, priority=0)
    unchanged = {"index", "escalate"}  # the table shows escalate
    assert [name for name in document.Rule.__slots__ if getattr(rule, name) == getattr(plain, name)] == [
        name for name in document.Rule.__slots__ if name in unchanged
    ]


@pytest.mark.parametrize("name", in_policies())
def test_the_manual_names_every_action_and_every_step(name: str) -> None:
    text = (MANUAL / "rules" / "policies.md").read_text(encoding="utf-8")
    assert f"`{name}" in text
    attribute = dict.fromkeys(in_policies()[name].required, "a")
    rule = document.Rule(index=0, priority=0, actions=(document.Action(name=name, attribute=attribute),))
    table = text[text.index("| keep work away |") : text.index("- **taint**")]
    assert all(step.name in table for step in plan.of_rule(rule, code="0"))
