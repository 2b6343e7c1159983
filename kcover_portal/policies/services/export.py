"""Exports policies as one text that can be applied again."""

from collections.abc import Collection

import yaml

from kcover_portal.policies import queries
from kcover_portal.policies.models import Revision
from kcover_portal.policies.services import yaml_reader


def export(names: Collection[str] = ()) -> str:
    """Returns the active policies (all, or those of these names) as one YAML text that can be applied again.

    Each text is kept as its author wrote it. A text that would be parsed differently between others, such as one that
    begins with a YAML directive, is regenerated without its comments.
    """
    rows = [*queries.in_force(queries.RESCUE), *queries.in_force(queries.STANDBY)]
    return "---\n".join(_text(row) for row in rows if not names or row.policy.name in names)


def _text(row: Revision) -> str:
    try:
        documents, problems = yaml_reader.read(f"a: 1\n---\n{row.text}---\nb: 2\n")
    except yaml_reader.Unreadable:
        documents, problems = [], []
    if not problems and [document.content for document in documents] == [{"a": 1}, row.document, {"b": 2}]:
        return row.text
    return yaml.safe_dump(row.document, sort_keys=False, allow_unicode=True)
