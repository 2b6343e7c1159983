"""Text to documents: every value has its place, and nothing hostile gets far."""

import pytest

from kcover_portal.policies.services import yaml_reader


def read(text: str | bytes) -> tuple[list[object], list[tuple[int, int, str, str]]]:
    documents, problems = yaml_reader.read(yaml_reader.decode(text))
    return [one.content for one in documents], [(p.line, p.column, p.path, p.message) for p in problems]


def refusal(text: str | bytes) -> tuple[int, int, str, str]:
    with pytest.raises(yaml_reader.Unreadable) as caught:
        yaml_reader.read(yaml_reader.decode(text))
    problem = caught.value.problem
    assert str(caught.value) == f"line {problem.line}, column {problem.column}: {problem.message}"
    return problem.line, problem.column, problem.path, problem.message


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("+7", 7),
        ("0", 0),
        ("3.5", 3.5),
        (".5e3", 500.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("word", "word"),
        ('"62"', "62"),
        ("'true'", "true"),
        ('"on"', "on"),
        ("!!str 62", "62"),
        ("! 62", "62"),
        ("2026-11-21", "2026-11-21"),
        ("20min", "20min"),
        ("[]", []),
        ("{}", {}),
        ("|\n  two\n  lines", "two\nlines\n"),
    ],
)
def test_a_scalar_is_read_as_every_yaml_reader_would(written: str, value: object) -> None:
    assert read(f"key: {written}\n") == ([{"key": value}], [])


@pytest.mark.parametrize("written", ["on", "Off", "YES", "no", "062", "0x1F", "0b1", "1:30", "1_000", "9" * 19])
def test_values_that_yaml_readers_read_differently_are_refused(written: str) -> None:
    [document], [(line, column, path, message)] = read(f"a: 1\nkey: {written}\n")
    assert (line, column, path) == (2, 1 + len("key: "), "key")
    assert message == f'YAML 1.1 and 1.2 read {written} differently; write "{written}" to mean the text'
    assert document == {"a": 1, "key": written}


def test_a_place_is_the_key_of_a_value_and_the_start_of_an_item() -> None:
    [document], _ = yaml_reader.read("spec:\n  rules:\n    - priority: 1\n      errorCode: [62,\n        63]\n")
    rule = ("spec", "rules", 0)
    assert document.at((*rule, "priority")) == (3, 7)
    assert document.at((*rule, "errorCode")) == (4, 7)
    assert document.at((*rule, "errorCode", 0)) == (4, 19)
    assert document.at((*rule, "errorCode", 1)) == (5, 9)
    assert document.at((*rule, "missing", "deeper")) == (3, 7)
    assert document.at(("nothing",)) == (1, 1)


def test_yaml_documents_are_separated_and_keep_their_own_text() -> None:
    text = "# first\na: 1 # one\n---\n\n---\n# second\nb: 2\n...\n---\n- 3\n"
    documents, problems = yaml_reader.read(text)
    assert problems == []
    assert [one.content for one in documents] == [{"a": 1}, {"b": 2}, [3]]
    assert [one.text for one in documents] == ["# first\na: 1 # one\n", "# second\nb: 2\n", "- 3\n"]
    assert [one.line for one in documents] == [2, 5, 9]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n---\n"])
def test_empty_documents_are_passed_over(text: str) -> None:
    assert read(text) == ([], [])


def test_carriage_returns_and_a_byte_order_mark_are_ignored() -> None:
    documents, problems = yaml_reader.read(yaml_reader.decode("\ufeffa: 1\r\nb:\r\n  c: on\r\n".encode()))
    assert documents[0].content == {"a": 1, "b": {"c": "on"}}
    assert [(p.line, p.column, p.path) for p in problems] == [(3, 6, "b.c")]


def test_a_key_written_twice_is_refused_with_both_lines() -> None:
    [document], problems = read("spec:\n  a: 1\n  b: 2\n  a: 3\n")
    assert problems == [(4, 3, "spec.a", "Duplicate key 'a', first used in line 2.")]
    assert document == {"spec": {"a": 1, "b": 2}}


def test_the_places_in_a_repeated_key_do_not_overwrite_the_first() -> None:
    [document], _ = yaml_reader.read("a:\n  b: 1\na:\n  b: 2\n")
    assert document.at(("a", "b")) == (2, 3)


def test_aliases_are_written_out_and_have_the_place_of_the_alias() -> None:
    [document], problems = yaml_reader.read("base: &x\n  labels: {a: b}\nagain: *x\nlist: [*x]\n")
    assert problems == []
    assert document.content["again"] == {"labels": {"a": "b"}}
    assert document.content["list"] == [{"labels": {"a": "b"}}]
    assert document.at(("base", "labels", "a")) == (2, 12)
    assert document.at(("again", "labels", "a")) == (3, 8)
    assert document.at(("list", 0, "labels")) == (4, 8)


def test_an_anchor_is_forgotten_with_its_document() -> None:
    assert refusal("a: &x 1\n---\nb: *x\n") == (3, 4, "b", "Alias *x has no anchor &x before it.")


def test_an_alias_inside_of_its_own_anchor_is_refused() -> None:
    assert refusal("a: &x [1, *x]\n") == (1, 11, "a[1]", "Alias *x refers to itself.")


def test_a_bomb_of_aliases_is_refused_before_it_goes_off() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert refusal("\n".join(lines))[3] == "More than 20000 values with aliases expanded."


@pytest.mark.parametrize(
    "text",
    ["[" * 40 + "]" * 40, "[" * 100_000, "{a: " * 40 + "1" + "}" * 40, "\n".join("  " * n + "a:" for n in range(40))],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert refusal(text)[3] == "Nested more than 32 levels deep."


def test_thirty_two_levels_are_read() -> None:
    assert read("[" * 32 + "]" * 32)[1] == []


def test_the_size_is_bounded_in_bytes() -> None:
    fits = "# " + "ä" * ((yaml_reader.MAX_BYTES - 10) // 2) + "\na: 1\n"
    assert len(fits.encode()) <= yaml_reader.MAX_BYTES
    assert read(fits) == ([{"a": 1}], [])
    assert refusal("#" * yaml_reader.MAX_BYTES + "\n") == (1, 1, "", "The text has 262145 bytes. The limit is 262144.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a: 1\nb: \xff\n", (2, 4, "", "Byte 0xff is not UTF-8. Save the file as UTF-8.")),
        ("a: \ud800", (1, 4, "", "Byte 0xed is not UTF-8. Save the file as UTF-8.")),
        ("ä: 1\nb: \x07", (2, 4, "", "Character 7 is not allowed in YAML.")),
        ("a:\n\tb: 1\n", (2, 1, "", "YAML cannot be indented with tabs; use spaces")),
        ("? [1]\n: 2\n", (1, 3, "", "A key must be a string, not a list or a mapping.")),
    ],
)
def test_an_unreadable_text_is_refused_with_its_place(text: str | bytes, expected: tuple[int, int, str, str]) -> None:
    assert refusal(text) == expected


def test_a_syntax_error_has_the_message_of_the_parser() -> None:
    line, column, path, message = refusal("a: 1\n b: 2\n")
    assert (line, column, path) == (2, 3, "")
    assert message == "Invalid YAML: mapping values are not allowed in this context"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: !!python/object:os.system x\n",
            "The tag tag:yaml.org,2002:python/object:os.system is not supported. Remove it.",
        ),
        ("a: !thing [1]\n", "The tag !thing is not supported. Remove it."),
        ("a: !!set {x}\n", "The tag tag:yaml.org,2002:set is not supported. Remove it."),
    ],
)
def test_tags_are_refused(text: str, message: str) -> None:
    assert read(text)[1] == [(1, 4, "a", message)]


def test_merge_keys_are_refused_unless_quoted() -> None:
    assert read("a:\n  <<: {b: 1}\n")[1] == [(2, 3, "a", "Merge keys (<<) are not supported. Write the keys out.")]
    assert read('a: {"<<": 1}\n') == ([{"a": {"<<": 1}}], [])


def test_keys_are_texts() -> None:
    assert read("62: a\ntrue: b\n") == ([{"62": "a", "true": "b"}], [])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("spec", "rules", 0, "errorCode", 1), "spec.rules[0].errorCode[1]"),
        (("labels", "kcover.io/pool"), 'labels["kcover.io/pool"]'),
        ((0, "a"), "[0].a"),
    ],
)
def test_paths_are_spelled_as_people_write_them(path: yaml_reader.Path, text: str) -> None:
    assert yaml_reader.spell(path) == text
