"""Reasons to refuse a query parameter, shared by pages and REST."""

import difflib
from collections.abc import Collection

from kcover import reasons


def unknown(name: str, known: Collection[str]) -> reasons.Reason:
    """Why a parameter of this name is refused, with the closest known name if there is one."""
    if not known:
        return reasons.of("unknown_parameter", help=reasons.of("parameters_none"))
    listed, close = ", ".join(sorted(known)), difflib.get_close_matches(name, known, n=1)
    if not close:
        return reasons.of("unknown_parameter", help=reasons.of("parameters_known", known=listed))
    return reasons.of("unknown_parameter", help=reasons.of("parameters_near", near=close[0], known=listed))
