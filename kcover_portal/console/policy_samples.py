"""The texts with which the editor of a new policy begins."""

import json
import re
from typing import Final

from kcover.faults import fault
from kcover_portal.needs import queries as needs
from kcover_portal.policies.models import Policy
from kcover_portal.shared_reads import policy_winners

MAX_NAME = 60
SAMPLE: Final = """\
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata:
  name: gpu-faults
spec:
  rules:
    - priority: 10
      errorCode: ["48", "62", "64"]
      mode: shadow
      actions:
        - name: cordon
        - name: drain
          attribute: {waittime: 10min}
        - name: reboot
          attribute: {unCordon: "true"}
"""
_SELECTED: Final = '      errorCode: ["48", "62", "64"]\n'
_REBOOTED: Final = '        - name: reboot\n          attribute: {unCordon: "true"}\n'


def of_fault(kind: str, code: str) -> str:
    """The sample with a rule for this fault; unchanged for a kind that no rule can match. In shadow mode, so that a
    text that is published unread does nothing. It reboots where the catalog advises it, and drains otherwise.
    """
    if kind not in fault.INCIDENT_KINDS or not _can_be(kind, code):
        return SAMPLE
    text = SAMPLE.replace("gpu-faults", _unused_name(kind, code)).replace(_SELECTED, _selector(kind, code))
    return text if needs.verb_for(kind, code) == "reboot" else text.replace(_REBOOTED, "")


def _can_be(kind: str, code: str) -> bool:
    """Returns whether a fault may have this code, and YAML can spell it."""
    return bool(code) and code.isprintable() and policy_winners.is_code(kind, code)


def _selector(kind: str, code: str) -> str:
    quoted = json.dumps(code, ensure_ascii=False)
    match kind:
        case "xid":
            return f"      errorCode: [{quoted}]\n"
        case "sxid":
            return f"      match: {{sxid: [{quoted}]}}\n"
        case "check":
            return f"      match: {{checks: [{quoted}]}}\n"
        case fault.OVERFLOW:
            return f"      match: {{kinds: [{fault.OVERFLOW}]}}\n"
        case _:
            return f"      match: {{codes: {{{kind}: [{quoted}]}}}}\n"


def _unused_name(kind: str, code: str) -> str:
    """A name that no policy has: publishing it must not become a revision of another one."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{kind}-{code}".lower())[:MAX_NAME].strip("-")
    taken = set(Policy.objects.filter(name__startswith=name).values_list("name", flat=True))
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
    return next(one for one in names if one not in taken)
