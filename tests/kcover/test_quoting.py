"""What somebody wrote, in a message about it."""

import pytest

from kcover import quoting


@pytest.mark.parametrize(
    ("value", "said"),
    [("62", "'62'"), (62, "62"), (None, "None"), (["a"], "['a']"), ("x" * 58, repr("x" * 58))],
)
def test_what_is_short_is_quoted_whole(value: object, said: str) -> None:
    assert quoting.shown(value) == said


@pytest.mark.parametrize("value", ["x" * 121, "x" * 10**6, ["y" * 190], {"k": list(range(90))}, 10**200, "'\"" * 100])
def test_what_is_long_is_cut(value: object) -> None:
    for said in (quoting.shown(value), quoting.plain(value)):
        assert len(said) == quoting.LONGEST
        assert said.endswith("...")


def test_a_number_that_python_does_not_write_out_is_said_in_words() -> None:
    assert quoting.shown(10**5000) == quoting.plain(10**5000) == "a number of very many digits"


def test_plain_is_without_quotation_marks() -> None:
    assert (quoting.plain("it's"), quoting.plain(62)) == ("it's", "62")
