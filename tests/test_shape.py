"""Rules of code structure that no linter checks: the length of files, and the direction of lookups across relations."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps

ROOT = Path(__file__).parents[1]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = ("kcover", "agents", "kcover_portal", "simulator", "tools")
LONGEST = 400  # lines

# Files that may be longer, each with the reason.
LONGER: dict[str, str] = {
    "tools/verify_proof.py": "a stranger gets one file",
    "kcover_portal/fleet/models.py": "all tables of one Django app",
}

# Lookups through a relation that a higher app declares: (app, name of the relation). This list only shrinks.
UPWARD: dict[tuple[str, str], str] = {}

# Django's names for arguments that are lookups: as keywords (filter(node__name=...)), and as strings (F("node__name")).
KEYWORD_LOOKUPS = {"filter", "exclude", "get", "get_or_create", "aget", "Q", "get_object_or_404"}
STRING_LOOKUPS = {
    *("values", "values_list", "order_by", "only", "defer", "distinct", "select_related", "prefetch_related"),
    *("F", "OuterRef", "Prefetch", "Count", "Max", "Min", "Sum", "Avg", "StringAgg", "ArrayAgg", "dates", "datetimes"),
}
# Methods that only a manager or a queryset has: what they are called on is a relation.
MANAGER_METHODS = {
    "all",
    "filter",
    "exclude",
    "exists",
    "order_by",
    "values_list",
    "aggregate",
    "annotate",
    "create",
} | {
    *("first", "last", "select_related", "prefetch_related", "select_for_update", "in_bulk", "bulk_create", "iterator"),
}


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if "migrations" not in path.parts)


def test_no_file_is_longer_than_400_lines_without_a_reason() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources(*FOLDERS)
    }
    over = {path for path, length in lengths.items() if length > LONGEST}
    assert over == LONGER.keys(), "split them, or remove the reason"


def test_packages_export_by_import_as() -> None:
    """A list of names beside the imports would say each of them twice."""
    listed = [path for path in sources(*FOLDERS) if "__all__" in path.read_text(encoding="utf-8")]
    assert listed == [ROOT / "kcover_portal" / "__init__.py"]  # Celery's name for its app


# What else has a ``code`` that is compared, each with the reason: see ``compared_codes`` for how it is written.
OTHER_CODES: dict[tuple[str, str], str] = {
    ("kcover_portal/preflight/services/pair_runs.py", "because__code__in=GIVEN_UP"): "made by reasons.known",
    ("kcover_portal/reports/rescues.py", "because__code__in=STILL_CORDONED"): "made by reasons.known",
    ("kcover_portal/operate/metrics.py", "reasons.from_json(reason)"): "counts by code",
    ("tools/verify_proof.py", "data.get('because') or {}"): "has no core, and reads what any version stored",
    ("tools/verify_proof.py", "entry['data'].get('because') or {}"): "has no core, and reads what any version stored",
    ("kcover_portal/incidents/queries/__init__.py", "incident"): "of a fault",
    ("kcover_portal/incidents/queries/__init__.py", "incident__code__in=_PROGRAM_CODES"): "of a fault",
    ("agents/probes/log/repeats.py", "fault"): "of a fault",
    ("agents/probes/gpu/nvidia.py", "device"): "of NVML",
    ("agents/probes/gpu/nvidia.py", "error"): "of NVML",
    ("agents/probes/gpu/nvml.py", "self"): "of NVML",
    ("kcover_portal/kube/verbs/pods.py", "status"): "of an answer of Kubernetes",
    ("kcover_portal/kube/verbs/pods.py", "http.answer(error)"): "of an answer of Kubernetes",
    ("simulator/kubeapi/responses.py", "error"): "of an answer of Kubernetes",
}


def compared_codes(tree: ast.AST) -> Iterator[str]:
    """What each compared ``code`` belongs to.

    ``X`` of ``X.code == ...``, of ``X["code"]`` and ``X.get("code")`` alike, and of each set or list of them. A lookup
    in a column is yielded with what it is compared with: ``because__code=CODE``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg and re.search(r"__code(__\w+)?$", node.arg):
            yield f"{node.arg}={ast.unparse(node.value)}"
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            compared = (node.left, *node.comparators)
            sides = [side.elt if isinstance(side, ast.GeneratorExp) else side for side in compared]
        elif isinstance(node, ast.SetComp | ast.ListComp):
            sides = [node.elt]
        for side in sides:
            match side:
                case ast.Attribute(value=owner, attr="code"):
                    yield ast.unparse(owner)
                case ast.Subscript(value=owner, slice=ast.Constant(value="code")):
                    yield ast.unparse(owner)
                case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[ast.Constant(value="code"), *_]):
                    yield ast.unparse(owner)


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("why.code == 'x'", ["why"]),
        ("'x' in {why.code for why in all}", ["why"]),
        ("'x' in (why.code for why in all)", ["why"]),
        ("codes = {row.get('because', {}).get('code') for row in rows}", ["row.get('because', {})"]),
        ("why['code'] in CODES", ["why"]),
        ("rows.filter(because__code__in=CODES, name=name)", ["because__code__in=CODES"]),
        ("Q(because__code=CODE)", ["because__code=CODE"]),
        ("code = answer.get('code')", []),
    ],
)
def test_a_compared_code_is_found(text: str, of: list[str]) -> None:
    assert [*dict.fromkeys(compared_codes(ast.parse(text)))] == of


def test_no_rule_goes_by_the_code_of_a_reason() -> None:
    """A sentence may be renamed. Ask the core, or ``reasons.says``, which knows the codes that there are.

    A condition on a column takes its codes from ``reasons.known``, and is an exception here.
    """
    found = {
        (str(path.relative_to(ROOT)), of)
        for path in sources("kcover_portal", "agents", "simulator", "tools")
        for of in compared_codes(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found - OTHER_CODES.keys() == set()
    assert OTHER_CODES.keys() - found == set(), "remove what nothing compares any more"


# Views with a form that is no dialog: pages for people who are not signed in, pages that read, and editors.
PAGES_WITH_FORMS = {
    *("approvals.py", "invitations.py", "sign_in_factor.py"),
    *("demo.py", "logs.py", "clusters.py", "scopes.py"),
    *("policies/editor.py", "policies/rule_form.py", "policies/tries.py"),
}


def test_each_dialog_acts_by_the_kit() -> None:
    """``form_dialog.act`` knows every refusal; a view that validates by itself forgets the next one."""
    folder = ROOT / "kcover_portal" / "console" / "views"
    found = {path for path in folder.rglob("*.py") if "is_valid()" in path.read_text(encoding="utf-8")}
    assert {str(path.relative_to(folder)) for path in found} == PAGES_WITH_FORMS


def test_rows_that_people_set_are_recorded_by_the_kit() -> None:
    """The kit finds what changed and hides secrets; an app that does it by itself forgets one of them."""
    kinds = "sink|source|channel|driver"
    changed = re.compile(rf"audit\.({kinds.title()})(Created|Changed|Deleted)\(|def (make|change|delete)_({kinds})\(")
    found = {path for path in sources("kcover_portal") if changed.search(path.read_text(encoding="utf-8"))}
    assert found == set()


def test_the_end_of_a_lease_is_compared_in_one_place() -> None:
    compared = re.compile(r"(lease|busy)_until__(lte|isnull)")
    found = {path for path in sources("kcover_portal") if compared.search(path.read_text(encoding="utf-8"))}
    assert found == set()  # runtime/services/claims.py takes the column as an argument


def test_claimed_rows_are_written_by_the_kit() -> None:
    """A worker writes a row only while it is its own. Rescues have statements of their own, which are built once."""
    portal, leased = ROOT / "kcover_portal", re.compile(r"\b(lease|busy)_until=")
    places = (path for path in sources("kcover_portal") if portal / "rescue" not in path.parents)
    found = {str(path.relative_to(portal)) for path in places if leased.search(path.read_text(encoding="utf-8"))}
    assert found == {
        "runtime/services/slices.py",  # part of the kit
        "checks/services/runs.py",  # no column marks the claim of a run of checks
    }


def layers() -> dict[str, int]:
    """The layer of each part of the portal, from import contract 4: 0 is the highest."""
    (contract,) = [entry for entry in CONFIG["tool"]["importlinter"]["contracts"] if entry["name"].startswith("4.")]
    return {
        name.strip(" ()"): rank for rank, layer in enumerate(contract["layers"]) for name in re.split(r"[|:]", layer)
    }


def reverse_relations() -> dict[str, set[str]]:
    """The name of each reverse relation, as lookups and as attributes write it, and the apps that declare it."""
    found: dict[str, set[str]] = {}
    for model in apps.get_models():
        for relation in model._meta.related_objects:
            app = re.match(r"kcover_portal\.(\w+)", relation.related_model.__module__)
            if app and model.__module__.startswith("kcover_portal."):
                for name in (relation.name, relation.get_accessor_name()):
                    found.setdefault(name, set()).add(app[1])
    return found


def fields() -> dict[str, set[str]]:
    """The apps that have a field of each name, and may mean it by that name."""
    found: dict[str, set[str]] = {}
    for model in apps.get_models():
        if app := re.match(r"kcover_portal\.(\w+)", model.__module__):
            for field in (*model._meta.fields, *model._meta.many_to_many):
                found.setdefault(field.name, set()).add(app[1])
    return found


def lookups(tree: ast.AST) -> Iterator[str]:
    """The paths that a file's queries follow: ``node__name`` of ``filter(node__name=...)`` and of ``F("node__name")``,
    ``incidents`` of ``node.incidents.filter(...)``."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        called = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if called in KEYWORD_LOOKUPS:
            yield from (keyword.arg for keyword in call.keywords if keyword.arg)
            yield from strings(*pairs(call))
        if called in STRING_LOOKUPS:
            yield from strings(*call.args)
        yield from strings(*(keyword.value for keyword in call.keywords if keyword.arg == "field_name"))  # FilterSets
        on = getattr(call.func, "value", None)
        if called in MANAGER_METHODS and isinstance(on, ast.Attribute):
            yield on.attr


def pairs(call: ast.Call) -> Iterator[ast.expr]:
    """The lookups in ``Q(("node__name", value))`` and in ``filter(**{"node__name": value})``."""
    for argument in (*call.args, *(keyword.value for keyword in call.keywords if not keyword.arg)):
        if isinstance(argument, ast.Dict):
            yield from (key for key in argument.keys if key)
        elif isinstance(argument, ast.Tuple) and argument.elts:
            yield argument.elts[0]


def strings(*nodes: ast.expr) -> Iterator[str]:
    """The texts among the expressions, without the sign of a descending order."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.removeprefix("-")


def upward(app: str, tree: ast.AST) -> set[str]:
    """The reverse relations of higher apps that lookups in a file of ``app`` go through."""
    order, declared, own = layers(), reverse_relations(), fields()
    below = {name for name, rank in order.items() if rank > order[app]} | {app}
    return {
        part
        for lookup in lookups(tree)
        for part in lookup.split("__")
        if part in declared and not declared[part] & below and not own.get(part, set()) & below
    }


def test_lookups_follow_no_relation_into_a_higher_app() -> None:
    found = set()
    for path in sources("kcover_portal"):
        if path != ROOT / "kcover_portal" / "__init__.py":
            app = path.relative_to(ROOT / "kcover_portal").parts[0].removesuffix(".py")
            found |= {(app, name) for name in upward(app, ast.parse(path.read_text(encoding="utf-8")))}
    assert found <= UPWARD.keys(), "ask the higher app, or move the query up"


@pytest.mark.parametrize(
    "code",
    [
        "Node.objects.filter(incidents__state='open')",
        "Node.objects.exclude(Q(incidents__state='open'))",
        "Node.objects.filter(**{'incidents__state': 'open'})",
        "Node.objects.filter(Q(('incidents__state', 'open')))",
        "Node.objects.values('name', 'incidents__kind')",
        "Node.objects.order_by('-incidents__opened_at')",
        "Node.objects.prefetch_related('incidents')",
        "Cluster.objects.prefetch_related(Prefetch('nodes__incidents'))",
        "Node.objects.annotate(n=Count('incidents'))",
        "Filter(field_name='incidents__state')",
        "node.incidents.exists()",
        "Agent.objects.filter(node__incidents__isnull=False)",
    ],
)
def test_a_lookup_into_a_higher_app_is_found(code: str) -> None:
    assert upward("fleet", ast.parse(code)) == {"incidents"}
    assert upward("incidents", ast.parse(code)) == set()
    assert upward("rescue", ast.parse(code)) == set()


@pytest.mark.parametrize(
    "code",
    [
        "Node.objects.filter(cluster__name='a')",
        "incidents.of(node)",
        "f(incidents=1)",
        "{'incidents': 1}",
        "x.nodes.all()",
    ],
)
def test_other_words_are_no_lookups(code: str) -> None:
    assert upward("fleet", ast.parse(code)) == set()


def test_apps_of_one_layer_read_each_other_neither_way() -> None:
    code = ast.parse("Policy.objects.filter(cluster__incidents__state='open')")
    assert upward("policies", code)
