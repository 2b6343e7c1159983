"""The policy editor, validated by the server."""

import json
from typing import Any, cast

from csp.constants import NONCE
from csp.decorators import csp_update
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kcover import audit
from kcover.policy import document, modes
from kcover.values import masked_addresses
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import forms, policy_samples, policy_vocabulary
from kcover_portal.console.access import Request, place, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms import policy_tries
from kcover_portal.console.views.policies import parts, rule_form
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import localization
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from kcover_portal.runtime.services import concurrency_limits


@require_http_methods(["GET", "POST"])
@signed_in
def edit(request: Request, name: str = "", kind: str = queries.RESCUE) -> HttpResponse:
    """The editor. Saving applies the whole text or nothing, and fails if someone else published in between."""
    require(request, Verb.WRITE_POLICIES, None)
    row = get_object_or_404(Policy, kind=kind, name=name) if name else None
    current = queries.revision(row) if row else None
    text = request.POST.get("text") or (current.text if current else _first_text(request))
    form = forms.Act(request.POST or None)
    if current and request.method == "GET" and masked_addresses.has_key(text):
        act = audit.SecretRead(policy=name, standby=kind != queries.RESCUE)
        ledger.record("", act, actor=accounts.actor(request.user), now=timezone.now())
    validated = services.validate(text)
    conflict = ""
    if request.method == "POST" and form.is_valid() and not validated.problems and _agrees(request, validated):
        confirm(request)
        try:
            applied = services.apply(
                text,
                author=accounts.actor(request.user),
                reason=form.cleaned_data["reason"],
                now=timezone.now(),
                name=name or None,
                kind=kind,
                expected=parts.expected(request) if name else None,
            )
        except services.Conflict as error:
            conflict = localization.say(error.reason)
        except services.InvalidPolicies as error:
            validated = services.ValidationResult((), error.problems)
        else:
            return redirect(parts.addresses(applied[0])["page"])
    shown = {"form": form, "validated": validated, "conflict": conflict}
    if row is None and "code" in request.GET:
        shown["trial"] = policy_tries.Trial(initial={"scope": policy_tries.NOW})
    return page(request, row, text, shown, status=422 if request.method == "POST" else 200)


def _first_text(request: Request) -> str:
    """The text of a new policy; with a fault in the address, a rule for that fault."""
    kind, code = (request.GET.get(name, "").replace("\0", "") for name in ("kind", "code"))
    return policy_samples.of_fault(kind, code)


def page(request: Request, row: Policy | None, text: str, shown: dict[str, Any], *, status: int = 200) -> HttpResponse:
    """The editor with a text. ``shown``: further values for the page, such as ``validated``, its validation."""
    validated = shown.get("validated") or services.validate(text)
    context = {
        "policy": row,
        "addresses": parts.addresses(row) if row else {},
        "text": text,
        "expected": request.POST.get("expected") or (row.revision if row else ""),
        "form": forms.Act(),
        "tries": row is None or row.kind == queries.RESCUE,
        "trial": policy_tries.Trial(),
        "nonce": getattr(request, "csp_nonce", ""),
        "phrases": json.dumps(policy_vocabulary.phrases()),
        "unsaved": request.method == "POST",
        **rule_form.fields(text),
        "base": "console/base.html",
        **_validated(request, validated),
        **shown,
    }
    response = render(request, "console/pages/policy_edit.html", context, status=status)
    with_styles = csp_update({"style-src": [NONCE]})  # CodeMirror writes its own
    return cast("HttpResponse", with_styles(lambda _request: response)(request))


@require_POST
@signed_in
def validate(request: Request) -> HttpResponse:
    """Validation of a text that is being edited, with its changes."""
    require(request, Verb.WRITE_POLICIES, None)
    with place(request, concurrency_limits.VALIDATIONS):
        validated = services.validate(request.POST.get("text", ""))
    return render(request, "console/parts/problems.html", {"in_place": True, **_validated(request, validated)})


@require_POST
@signed_in
def rule(request: Request) -> HttpResponse:
    """The form of a rule of the text that is being edited; with ``apply``, the text with what the form changes."""
    require(request, Verb.WRITE_POLICIES, None)
    with place(request, concurrency_limits.VALIDATIONS):
        shown = rule_form.answer(request.POST)
    if request.htmx:
        return render(request, "console/parts/rule_form.html", shown)
    kind, name = request.POST.get("kind", queries.RESCUE), request.POST.get("policy", "").replace("\0", "")
    row = Policy.objects.filter(kind=kind, name=name).first() if kind in (queries.RESCUE, queries.STANDBY) else None
    return page(request, row, shown["text"], shown)


@require_GET
@signed_in
def vocabulary(request: Request) -> HttpResponse:
    """The words of policies with their meaning, for completion and help in the editor."""
    return JsonResponse(policy_vocabulary.vocabulary())


def _validated(request: Request, validated: services.ValidationResult) -> dict[str, Any]:
    """What the validation shows. ``agreed``: the person has agreed to the effects on other rules."""
    effects = services.effects(validated)
    return {
        "validated": validated,
        "changed": _changed(validated),
        "effects": effects,
        "agreement": services.digest_of_effects(effects),
        "agreed": _agrees(request, validated),
        "publish": _publish_label(validated),
    }


def _agrees(request: Request, validated: services.ValidationResult) -> bool:
    """Whether the text has no effect on other rules, or the person agreed to exactly these effects."""
    return request.POST.get("agreed", "") == services.digest_of_effects(services.effects(validated))


def _publish_label(validated: services.ValidationResult) -> str:
    """What publishing the text allows the portal to do."""
    rules = (
        rule for item in validated.policies if isinstance(item.policy, document.Policy) for rule in item.policy.rules
    )
    used = {rule.mode for rule in rules}
    loosest = next((mode for mode in reversed(modes.RULE_MODES) if mode in used), "")
    return {
        "shadow": _("Publish in shadow mode"),
        "approve": _("Publish with approval"),
        "enforce": _("Publish and enforce"),
    }.get(loosest, _("Publish"))


def _changed(validated: services.ValidationResult) -> list[dict[str, Any]]:
    """The changes to every active policy of the text."""
    if validated.problems:
        return []
    live = {
        (row.policy.kind, row.policy.name): row
        for kind in (queries.RESCUE, queries.STANDBY)
        for row in queries.in_force(kind)
    }
    changed = []
    for policy in validated.policies:
        row = live.get(policy.key)
        if row is not None:
            found = services.compare((row.text, row.document), (policy.text, policy.document))
            changed.append({"name": policy.policy.name, "revision": row.number, "lines": parts.lines(found.lines)})
    return changed
