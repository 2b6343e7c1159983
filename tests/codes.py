"""Reasons in tests: their codes, so that assertions do not depend on English sentences."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kcover import reasons
from kcover.sentences import parameters


def code_of(because: Mapping[str, Any]) -> str:
    """The code of a reason that a row or a ledger entry keeps; "" where it keeps none."""
    reason = reasons.kept(because)
    return reason.code if reason else ""


def all_codes_of(reason: reasons.Reason) -> list[str]:
    """The codes of a reason and of every reason in it."""
    return [one.code for one in _reasons(reason)]


def codes_of(because: Mapping[str, Any] | reasons.Reason) -> list[str]:
    """The codes of a reason and of every reason in it, outermost first; scopes, durations and so on are left out."""
    reason = because if isinstance(because, reasons.Reason) else reasons.kept(because)
    return list(_codes(reason)) if reason else []


def _codes(reason: reasons.Reason) -> Iterator[str]:
    if reason.code != reasons.ALL and reason.code not in parameters.SENTENCES:
        yield reason.code
    for _, value in reason.params:
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, reasons.Reason):
                yield from _codes(inner)


def found_in(because: Mapping[str, Any] | reasons.Reason, code: str) -> reasons.Reason:
    """The first reason of that code, at any depth. Raises AssertionError where there is none."""
    outer = because if isinstance(because, reasons.Reason) else reasons.from_json(because)
    for reason in _reasons(outer):
        if reason.code == code:
            return reason
    raise AssertionError(f"no reason {code} in {outer}")


def _reasons(reason: reasons.Reason) -> Iterator[reasons.Reason]:
    yield reason
    for _, value in reason.params:
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, reasons.Reason):
                yield from _reasons(inner)


@contextlib.contextmanager
def refused(kind: type[reasons.ExplainedError], *codes: str) -> Iterator[None]:
    """Expects an error of that type whose reasons have these codes, outermost first."""
    with pytest.raises(kind) as caught:
        yield
    assert codes_of(caught.value.reason) == list(codes)
