"""The packs of policies that come with the portal: their rules, a try on the faults so far, and their installation."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console.access import Request, later, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.lib import localization
from kcover_portal.policies import services
from kcover_portal.policies.services import shipped
from kcover_portal.rescue.decide import policy_tries as jobs
from kcover_portal.runtime.models import Mode
from kcover_portal.shared_reads import pack_previews, policy_tries

FIRST_PACK = "nvidia"


@require_GET
@signed_in
def packs(request: Request) -> HttpResponse:
    """All packs with their rules, and the answers of the person's last try of each."""
    return _page(request)


@require_GET
@signed_in
def first_pack(request: Request) -> HttpResponse:
    """Ask which pack to begin with, in which mode, beside what each would have done with the faults so far."""
    context = {
        "previews": [(found, _about(found.pack.name)) for found in pack_previews.previews(request.user)],
        "modes": [(mode, Mode(mode).label, _mode(mode)) for mode in shipped.MODES],
        "first_mode": services.FIRST_MODE,
        "first_pack": FIRST_PACK,
        "open": pack_previews.is_first_choice_open(),
        "days": policy_tries.MAX_DAYS,
        "most": pack_previews.MAX_FAULTS,
    }
    return render(request, "console/pages/first_pack.html", context)


@require_POST
@signed_in
def dismiss_first_pack(request: Request) -> HttpResponse:
    """Put the choice off: the overview no longer leads to it."""
    require(request, Verb.WRITE_POLICIES, None)
    services.dismiss_first_choice(author=accounts.actor(request.user), now=timezone.now())
    return redirect("console:overview")


@require_POST
@signed_in
def install_pack(request: Request) -> HttpResponse:
    require(request, Verb.WRITE_POLICIES, None)
    confirm(request)
    try:
        services.install_pack(
            request.POST.get("pack", ""),
            request.POST.get("mode", services.FIRST_MODE),
            author=accounts.actor(request.user),
            reason=request.POST.get("reason", "").replace("\0", "")[:500],
            now=timezone.now(),
        )
    except services.UnknownPack as error:
        return _page(request, refused=localization.say(error.reason), status=422)
    except services.InvalidPolicies as error:
        return _page(request, refused="; ".join(localization.say(it.reason) for it in error.problems), status=422)
    except services.Conflict as error:
        return _page(request, refused=localization.say(error.reason), status=409)
    return redirect("console:policies")


@require_POST
@signed_in
def try_pack(request: Request) -> HttpResponse:
    """Begin a try of a pack on the faults of the last days. Nothing is applied."""
    require(request, Verb.WRITE_POLICIES, None)
    try:
        text = services.pack_text(request.POST.get("pack", ""))
        row = policy_tries.begin(request.user, text, days=policy_tries.MAX_DAYS, now=timezone.now())
    except services.UnknownPack as error:
        return _page(request, refused=localization.say(error.reason), status=422)
    except jobs.TryRefused as error:
        return later(_page(request, refused=localization.say(error.reason)), error)
    return redirect("console:policy-try-one", row.pk)


def _page(request: Request, *, refused: str = "", status: int = 200) -> HttpResponse:
    context = {
        "packs": [(pack, _about(pack.name), _tried(request, pack.text)) for pack in services.packs()],
        "modes": [(mode, Mode(mode).label) for mode in shipped.MODES],
        "days": policy_tries.MAX_DAYS,
        "refused": refused,
    }
    return render(request, "console/pages/policy_packs.html", context, status=status)


def _about(pack: str) -> str:
    return {
        "kcover": _("Cordons the nodes that a preflight names, and nodes whose MetaX GPUs fail a check."),
        "konduktor": _("Taints a node that has a node fault, as Konduktor does. Running pods stay."),
        "ladder": _(
            "Reboots a node for the Xids of NVIDIA's catalog, then switches its power, then opens a repair. Each step "
            "follows only if the one before it is not proved."
        ),
        "kce": _("The table of Kingsoft Cloud's help page, and KCE's global rule, which cordons for any node fault."),
        "autopilot": _(
            "Cordons nodes that fail Autopilot's hardware checks. Network and storage failures are "
            "escalated to an operator."
        ),
        "nvidia": _(
            "Follows NVIDIA's Xid catalog and Fabric Manager guide: cordon, drain, reboot, or escalate to an operator."
        ),
    }[pack]


def _mode(mode: str) -> str:
    return {
        "shadow": _("The portal decides every fault, shows what it would do, and does nothing."),
        "approve": _("By default a faulty node is isolated at once. All other steps wait for approval."),
        "enforce": _("Rescues begin at once, within the guards of the cluster."),
    }[mode]


def _tried(request: Request, text: str) -> dict[str, Any] | None:
    """The person's last try of this text with its answers; None if there is none."""
    row = policy_tries.tries(request.user).filter(text=text).order_by("-pk").first()
    if row is None:
        return None
    found = policy_tries.summary(request.user, row)
    return {"row": row, "done": found.done, "answers": found.after.most_common()}
