"""Evaluates an admission policy of deploy/ as an API server does: its variables in order, then its validations."""

from pathlib import Path
from typing import Any, Self

import cel

from tests.deploy.manifests import ROOT, documents

Object = dict[str, Any]


class AdmissionPolicy:
    """A policy and its binding."""

    def __init__(self, policy: Object, binding: Object) -> None:
        self.policy, self.binding = policy, binding
        self.spec: Object = policy["spec"]

    @classmethod
    def of_file(cls, file: str) -> Self:
        """Those of one file of deploy/."""
        policy, binding = documents(Path(ROOT, "deploy", file))
        return cls(policy, binding)

    @property
    def messages(self) -> set[str]:
        """What its validations say."""
        return {one["message"] for one in self.spec["validations"]}

    def denials(self, old: Object | None, new: Object, request: Object | None = None) -> list[str]:
        """The messages of the validations that fail for this change of an object. ``old`` None: it is created.

        ``request``: what an expression may know of the request besides.
        """
        given: Object = {"object": new, "oldObject": old, "request": request or {}, "variables": {}}
        for variable in self.spec["variables"]:
            given["variables"][variable["name"]] = cel.evaluate(variable["expression"], given)
        return [one["message"] for one in self.spec["validations"] if not holds(one["expression"], given)]

    def is_about(self, user: str, *groups: str) -> bool:
        """Returns whether the policy applies to requests of this user."""
        return is_about(self.spec, user, *groups)


def is_about(spec: Object, user: str, *groups: str) -> bool:
    """Returns whether the conditions of a policy match requests of this user."""
    given = {"request": {"userInfo": {"username": user, "groups": list(groups)}}}
    return all(cel.evaluate(one["expression"], given) is True for one in spec["matchConditions"])


def holds(expression: str, given: Object) -> bool:
    """Returns whether the expression is true. An error counts as false, because failurePolicy is Fail."""
    try:
        return cel.evaluate(expression, given) is True
    except (KeyError, IndexError, ValueError, RuntimeError, TypeError):
        return False
