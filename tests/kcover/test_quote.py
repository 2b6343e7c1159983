"""Quoted user input in error messages."""

import pytest

from kcover.values import quote


@pytest.mark.parametrize(
    ("value", "said"),
    [("62", "'62'"), (62, "62"), (None, "None"), (["a"], "['a']"), ("x" * 58, repr("x" * 58))],
)
def test_short_values_are_quoted_whole(value: object, said: str) -> None:
    assert quote.short_repr(value) == said


@pytest.mark.parametrize("value", ["x" * 121, "x" * 10**6, ["y" * 190], {"k": list(range(90))}, 10**200, "'\"" * 100])
def test_long_values_are_cut(value: object) -> None:
    for said in (quote.short_repr(value), quote.short_text(value)):
        assert len(said) == quote.MAX_CHARACTERS
        assert said.endswith("...")


def test_a_number_too_long_for_python_is_described() -> None:
    assert quote.short_repr(10**5000) == quote.short_text(10**5000) == "a number with very many digits"


def test_short_text_has_no_quotation_marks() -> None:
    assert (quote.short_text("it's"), quote.short_text(62)) == ("it's", "62")
