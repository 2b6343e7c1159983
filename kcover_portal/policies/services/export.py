"""All policies as one text that can be applied again."""

from collections.abc import Collection

import yaml

from kcover_portal.policies import queries
from kcover_portal.policies.models import Revision
from kcover_portal.policies.services import source


def export(names: Collection[str] = ()) -> str:
    """The policies in force (those of these names, or all) as one text that says the same when it is applied.

    Each stands in its author's words; only a text that would not read the same between others (one that begins with a
    YAML directive, for example) is written anew, without its comments.
    """
    rows = [*queries.in_force(queries.RESCUE), *queries.in_force(queries.STANDBY)]
    return "---\n".join(_text(row) for row in rows if not names or row.policy.name in names)


def _text(row: Revision) -> str:
    try:
        documents, problems = source.read(f"a: 1\n---\n{row.text}---\nb: 2\n")
    except source.Unreadable:
        documents, problems = [], []
    if not problems and [one.content for one in documents] == [{"a": 1}, row.document, {"b": 2}]:
        return row.text
    return yaml.safe_dump(row.document, sort_keys=False, allow_unicode=True)
