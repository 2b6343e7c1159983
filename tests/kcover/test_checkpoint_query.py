"""Queries for the last checkpoint of a job: placeholders stand between quotes, and names cannot leave them."""

import json

import pytest
from hypothesis import given, strategies as st

from kcover.jobs import checkpoint_query
from tests.kcover.policy_documents import rule_problems


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (checkpoint_query.EXAMPLE, ""),
        ("time() - age{pod=~'{job}-.*'}", ""),
        ('a{x="{job}"} # the {braces} of a comment', ""),
        ("", "checkpoint_query_length"),
        ('a{job="{job}"}' + " " * 500, "checkpoint_query_length"),
        ('a{job="{job}"}\0', "checkpoint_query_length"),
        ("a", "checkpoint_query_invalid"),
        ('a{n="{namespace}"}', "checkpoint_query_invalid"),
        ("a{job={job}}", "checkpoint_query_invalid"),
        ("a{job=`{job}`}", "checkpoint_query_invalid"),
        ('a{job="{job}}', "checkpoint_query_invalid"),
        ('a{job="{job}"} # {job}', "checkpoint_query_invalid"),
        ('a{job="{job}"} + b{job={job}}', "checkpoint_query_invalid"),
    ],
)
def test_queries_of_rules_are_checked(query: str, code: str) -> None:
    found = checkpoint_query.refusal(query)
    assert (found.code if found else "") == code


def test_names_that_a_pattern_would_read_otherwise() -> None:
    query = """a{job="{job}",pod=~"{job}-[0-9]+",ns!~'{namespace}'}"""
    filled = checkpoint_query.fill(query, namespace="it's", job="llm.7")
    assert filled == r"""a{job="llm.7",pod=~"llm\\.7-[0-9]+",ns!~'it\'s'}"""


@given(st.text(), st.text())
def test_a_name_cannot_leave_its_string(namespace: str, job: str) -> None:
    filled = checkpoint_query.fill('a{n="{namespace}",job="{job}"}', namespace=namespace, job=job)
    read, found = json.JSONDecoder(strict=False), []
    rest = filled.removeprefix("a{n=")
    for between in (",job=", "}"):
        value, end = read.raw_decode(rest)
        found.append(value)
        assert rest[end:].startswith(between)
        rest = rest[end:].removeprefix(between)
    assert (found, rest) == ([namespace, job], "")


@pytest.mark.parametrize(
    ("alone", "other"), [("checkpointQuery", "checkpointWait"), ("checkpointSource", "checkpointQuery")]
)
def test_a_query_needs_a_wait_and_a_source_needs_a_query(alone: str, other: str) -> None:
    given = {"checkpointQuery": checkpoint_query.EXAMPLE, "checkpointSource": "thanos"}
    [(path, message)] = rule_problems(actions=[{"name": "drain", "attribute": {alone: given[alone]}}])
    assert path == ("actions", 0, "attribute", alone)
    assert alone in message
    assert other in message


def test_the_name_of_a_source() -> None:
    attribute = {"checkpointWait": "1min", "checkpointQuery": checkpoint_query.EXAMPLE, "checkpointSource": "A B"}
    [(path, _)] = rule_problems(actions=[{"name": "drain", "attribute": attribute}])
    assert path == ("actions", 0, "attribute", "checkpointSource")
