"""The groups of nodes that have a budget of their own, and their names."""

from django.db.models import F, Value
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KeyTextTransform
from django.utils.translation import gettext as _

from kcover.decisions import guards


def expression(by: guards.BudgetScope) -> Combinable:
    """The group of a node, as an expression on its row: "" if the cluster has one budget."""
    parts: dict[str, Combinable] = {
        "cluster": Value(""),
        "pool": F("pool"),
        "label": KeyTextTransform(by.label_key, "labels"),
    }
    return parts[by.kind]


def name(by: guards.BudgetScope, group: str | None) -> str:
    """The name of a group; "" if the cluster has one budget."""
    names = {"cluster": "", "pool": group or _("no pool"), "label": f"{by.label_key}={group or ''}"}
    return names[by.kind]
