"""Every sentence gets the arguments that it names, at every place in the code that says it.

A wrong argument raises only when the line runs, in the middle of a rescue for example, so it is found by reading.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kcover import reasons
from kcover.decisions.guards.facts import TRAITS
from kcover.machines import risk
from kcover.reports import lemons
from kcover.validation import fault_classes
from kcover_portal.kube import diagnosis
from kcover_portal.notify.senders import pagers

ROOT = Path(__file__).parents[1]
FOLDERS = ("kcover", "kcover_portal", "agents")

# Functions that hand a code and its arguments to ``reasons.of``: (file, name at the call), the place of the code among
# the arguments by position, and the arguments that they add. ``test_no_function_passes_arguments_on_unseen`` keeps the
# table complete.
PASSED_ON: Mapping[tuple[str, str], tuple[int, frozenset[str]]] = {
    ("kcover/policy/document/problem_collector.py", "add"): (1, frozenset()),
    ("kcover/preflight/report.py", "ReportInvalid"): (1, frozenset()),
    ("kcover/wire/fields.py", "WireError"): (1, frozenset()),
    ("kcover_portal/rescue/step/handover.py", "named"): (0, frozenset({"host"})),
    ("kcover_portal/machines/services/replacements.py", "_unusable"): (0, frozenset()),
    ("kcover_portal/policies/services/yaml_reader.py", "_problem"): (2, frozenset()),
    ("kcover_portal/fleet/services/kubeconfig.py", "_invalid"): (0, frozenset()),
    ("kcover_portal/checks/services/pvc_check.py", "_of_class"): (1, frozenset()),
}

SCOPES = [code for code in reasons.FIELDS if code.startswith("scope_") and reasons.FIELDS[code] == {"name"}]
FLAGS = ("part_removed_by_repair", "part_returned_of_repair")

# How other files call them, where they import the name or have it of an object.
ELSEWHERE: Mapping[str, Iterable[str]] = {
    "add": ("problems.add",),
    "ReportInvalid": ("ReportInvalid",),
    "WireError": ("WireError", "EnvelopeError"),
}

# The last word of each of these names: a call of any other is not looked at closely.
MAKERS = {name.rpartition(".")[2] for name in [*ELSEWHERE, *(name for names in ELSEWHERE.values() for name in names)]}
MAKERS |= {passer for _, passer in PASSED_ON}

# Codes that a call gets from elsewhere: every value, by "file::function::code as it is written".
CODES: Mapping[str, Iterable[str]] = {
    "kcover/decisions/decide.py::_evaluate::why": (
        *("nothing_holds_back", "approval_required", "approve", "approve_after_isolation", "approve_after_notice"),
        "approve_isolates_only",
    ),
    "kcover/decisions/guards/evaluate.py::_storm::f'storm_{symptom.trait}'": [f"storm_{trait}" for trait in TRAITS],
    "kcover/decisions/guards/facts.py::scope_name::f'scope_{kind}'": SCOPES,
    "kcover/decisions/guards/settings.py::read::code": (
        *("seconds_not_in_range", "number_out_of_range", "percentage_out_of_range"),
    ),
    "kcover/policy/document/problem_collector.py::mappings::code": ("standby_match_type", "rule_type"),
    "kcover/reports/lemons.py::_advice::code": [code for _, code in lemons.STEPS],
    "kcover/reports/lemons.py::_advice::VALIDATE": (lemons.VALIDATE,),
    "kcover/machines/risk.py::after::prior.reason": [prior.reason for prior in (risk.NODE, risk.GPU)],
    "kcover/sources/observation.py::query_result::code": ("loki_result", "prometheus_result"),
    "kcover/validation/fault_classes.py::choose::chosen.because": [one.because for one in fault_classes.CLASSES],
    "kcover/validation/node_verdict.py::of_node::code": (
        *("validation_failures", "validation_errors", "validation_skipped"),
    ),
    "kcover_portal/checks/services/repair_validation.py::of_node::code": (
        *("repair_failed_validation", "repair_validation_begun", "repair_validation_passed", "repair_passed_by_name"),
    ),
    "kcover_portal/console/reads/safety.py::where_of::f'scope_{kind}'": SCOPES,
    "kcover_portal/fleet/services/scope_checks.py::_unknown::f'scope_{kind}'": SCOPES,
    "kcover_portal/fleet/services/scope_checks.py::without_nodes::f'scope_{kind}'": SCOPES,
    "kcover_portal/kube/diagnosis.py::of::refused": diagnosis.REFUSED.values(),
    "kcover_portal/needs/queries/sentences.py::_what_of_rescue::by_fault": ("need_rescue", "need_approval"),
    "kcover_portal/needs/queries/sentences.py::_what_of_rescue::by_hand": (
        *("need_manual_rescue", "need_manual_approval"),
    ),
    "kcover_portal/notify/services/channels.py::_check_secret::service.key_rule": [
        service.key_rule for service in pagers.SERVICES.values()
    ],
    "kcover_portal/parts/services/flags.py::_about::code": FLAGS,
    "kcover_portal/rescue/actions/drain.py::_pods_reason::code": (
        *("drain_leaving", "drain_timeout_proceed", "drain_force_failed", "drain_timeout_force", "drain_timeout"),
    ),
    "kcover_portal/rescue/step/jobs/job_restart.py::missing::code": (
        "pods_not_ended",
        "pods_starting",
        "pods_lack_room",
    ),
}

# Calls that cannot be read at all, by "file::function", with the reason why they are right nevertheless.
UNREAD: Mapping[str, str] = {
    **dict.fromkeys(
        [f"kcover/wire/decode.py::{name}" for name in ("decode", "_inventory", "_nics", "_figures")],
        "an error raised with a path",
    ),
    "kcover/wire/fields.py::matching": "tests/kcover/test_wire.py gets the sentence of each of its callers",
    "kcover/wire/fields.py::reason": "code and parameters were checked where the WireError is raised",
    "kcover_portal/rescue/actions/replace.py::_ended": "named is the object that _await gave: kind and object",
    "kcover_portal/rescue/actions/validate.py::_passed": "named is what run gave: validation and profile",
    "kcover_portal/rescue/step/handover.py::handed_over": "the message is there only with the code _because",
    "kcover_portal/sources/services/loki_pull.py::_page": "_span gives the times start and end",
}


@dataclass(frozen=True, slots=True)
class Said:
    """One call that makes a reason. ``codes`` and ``arguments`` are None where they cannot be read."""

    place: str
    function: str
    codes: frozenset[str] | None
    arguments: frozenset[str] | None

    @property
    def name(self) -> str:
        return f"{self.place.partition(':')[0]}::{self.function}"


def test_every_sentence_gets_the_arguments_that_it_names() -> None:
    assert [problem for said in _all_said() if said.codes and (problem := _wrong(said))] == []


def test_a_code_that_cannot_be_read_is_listed_with_the_reason() -> None:
    unread = {said.name for said in _all_said() if said.codes is None or said.arguments is None}
    assert unread == set(UNREAD)


def test_no_function_passes_arguments_on_unseen() -> None:
    found = {(path, function) for path, tree in _trees() for function in _forwarders(tree)}
    assert found <= {*PASSED_ON, ("kcover/reasons.py", "with_why"), ("kcover/reasons.py", "from_json")}


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ('reasons.of("machine_off", host=host)', True),
        ('reasons.of("machine_off")', False),
        ('reasons.of("machine_off_requested")', True),
        ('reasons.of("no_such_sentence")', True),
        ('reasons.of("machine_off" if off else "machine_off_requested", host=host)', True),
        ('reasons.with_why("paused", why)', False),
        ('reasons.with_why("paused", why, by=who)', True),
        ('reasons.of(f"mode_{mode}", by=who)', True),
        ('code = "machine_off"\nreasons.of(code, host=host)', True),
        ('names = {"host": host}\nreasons.of("machine_off", **names)', True),
        ('NEXT = {"a": "machine_off"}\nreasons.of(NEXT[name], host=host)', True),
    ],
)
def test_a_wrong_argument_is_found(source: str, wrong: bool) -> None:
    assert any(map(_wrong, _said("example.py", ast.parse(source)))) is wrong


def _wrong(said: Said) -> str:
    for code in sorted(said.codes or ()):
        if code not in reasons.FIELDS:
            return f"{said.place}: no sentence {code}"
        if said.arguments is not None and reasons.FIELDS[code] != said.arguments:
            return f"{said.place}: {code} takes {sorted(reasons.FIELDS[code])}, not {sorted(said.arguments)}"
    return ""


@functools.cache
def _trees() -> list[tuple[str, ast.Module]]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


@functools.cache
def _all_said() -> list[Said]:
    return [said for path, tree in _trees() if path != "kcover/reasons.py" for said in _said(path, tree)]


def _said(path: str, tree: ast.Module) -> Iterator[Said]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        made = _made(path, call)
        if made is None:
            continue
        code, arguments, suffixes = made
        around = [one for one in functions if one.lineno <= call.lineno <= (one.end_lineno or 0)]
        inner = around[-1] if around else None
        if inner is not None and (path, _called_as(tree, inner)) in PASSED_ON:
            continue  # checked where it is called
        scopes: list[ast.AST] = [*reversed(around), tree]
        named = f"{path}::{inner.name if inner else ''}::{ast.unparse(code)}"
        codes = frozenset(CODES[named]) if named in CODES else _codes(code, scopes)
        codes = codes and frozenset(code + suffix for code in codes for suffix in suffixes)
        given = _keywords(call, scopes)
        for suffix_code in sorted(codes) if codes and len(suffixes) > 1 else [None]:
            one = codes if suffix_code is None else frozenset({suffix_code})
            extra = frozenset({"why"}) if suffix_code and suffix_code.endswith("_because") else frozenset[str]()
            more = None if given is None else given | arguments | extra
            yield Said(f"{path}:{call.lineno}", inner.name if inner else "", one, more)


def _made(path: str, call: ast.Call) -> tuple[ast.expr, frozenset[str], tuple[str, ...]] | None:
    """The code's expression, the arguments that are added, and the endings of the code. None: the call makes none."""
    function = call.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "reasons":
        endings = {"of": ("",), "with_why": ("", "_because")}.get(name)
        return (call.args[0], frozenset(), endings) if endings else None
    if name not in MAKERS:  # most calls
        return None
    for (where, passer), (place, added) in PASSED_ON.items():
        spelt = {f"{Path(where).stem}.{passer}", *ELSEWHERE.get(passer, ())} | (
            {passer, f"self.{passer}"} if where == path else set()
        )
        if ast.unparse(function) in spelt and len(call.args) > place:
            return call.args[place], added, ("",)
    return None


def _codes(expression: ast.expr, scopes: Iterable[ast.AST]) -> frozenset[str] | None:
    """The codes that an expression can have; None if they cannot be read."""
    match expression:
        case ast.Constant(value=str(code)):
            return frozenset({code})
        case ast.IfExp(body=body, orelse=other):
            return _union([_codes(body, scopes), _codes(other, scopes)])
        case ast.JoinedStr(values=parts):
            pattern = "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z0-9.-]+" for part in parts
            )
            return frozenset(code for code in reasons.FIELDS if re.fullmatch(pattern, code)) or None
        case ast.Subscript(value=ast.Name(id=name)):
            return _union(_codes(value, ()) for table in _assigned(name, scopes) for value in _values(table))
        case ast.Name(id=name):
            return _union(_codes(value, ()) for value in _assigned(name, scopes))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[_, default]):
            known = [_codes(value, ()) for table in _assigned(name, scopes) for value in _values(table)]
            return _union([*known, _codes(default, scopes)])
    return None


def _union(found: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    all_found = list(found)
    known = [codes for codes in all_found if codes is not None]
    return frozenset().union(*known) if known and len(known) == len(all_found) else None


def _assigned(name: str, scopes: Iterable[ast.AST]) -> list[ast.expr]:
    """What is assigned to the name in the innermost scope that assigns to it."""
    for scope in scopes:
        found = []
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    found += _parts(target, node.value, name)
            if isinstance(node, ast.For | ast.comprehension) and name in _names(node.target):
                return []
        if found:
            return found
        if isinstance(scope, ast.FunctionDef) and name in [one.arg for one in scope.args.args]:
            return []
    return []


def _parts(target: ast.AST | None, value: ast.expr | None, name: str) -> list[ast.expr]:
    if isinstance(target, ast.Tuple) and name in _names(target):
        place = [getattr(one, "id", "") for one in target.elts].index(name)
        choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        return [one.elts[place] if isinstance(one, ast.Tuple) else ast.Constant(None) for one in choices]
    return [value] if value is not None and getattr(target, "id", "") == name else []


def _names(target: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def _values(table: ast.expr) -> list[ast.expr]:
    return list(table.values) if isinstance(table, ast.Dict) else [ast.Constant(None)]


def _keywords(call: ast.Call, scopes: Iterable[ast.AST]) -> frozenset[str] | None:
    """The names of the call's arguments, those of ``**`` with them; None if they cannot be read."""
    names: set[str] = set()
    for keyword in call.keywords:
        if keyword.arg is not None:
            names.add(keyword.arg)
            continue
        tables = [keyword.value]
        if isinstance(keyword.value, ast.Name):
            tables = _assigned(keyword.value.id, scopes)
        if not tables:
            return None
        for table in tables:
            if not isinstance(table, ast.Dict) or any(not isinstance(key, ast.Constant) for key in table.keys):
                return None
            names |= {str(key.value) for key in table.keys if isinstance(key, ast.Constant)}
    return frozenset(names)


def _forwarders(tree: ast.Module) -> Iterator[str]:
    """The functions that pass their own ``**`` arguments on to ``reasons.of``, by the name at the call."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            maker = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            starred = {ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg is None}
            if maker == "of" and function.args.kwarg and function.args.kwarg.arg in starred:
                yield _called_as(tree, function)


def _called_as(tree: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The function's name at a call: that of its class for ``__init__``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and function in node.body and function.name == "__init__":
            return node.name
    return function.name
