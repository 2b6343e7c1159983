"""The terms of vendors. Each change is in the audit log of the installation."""

from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover.repairs import repairs
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError
from kcover_portal.repairs.models import VendorTerms


def set_terms(vendor: str, terms: repairs.Terms, *, actor: str, reason: str, now: datetime) -> VendorTerms | None:
    """Sets the terms of a vendor; terms without any days remove the row. Raises FieldError."""
    if not vendor.strip():
        raise FieldError("vendor", reasons.of("value_empty"))
    days = {"accept_days": terms.accept_days, "return_days": terms.return_days}
    for name, value in days.items():
        if value is not None and not 1 <= value <= repairs.MAX_TERM_DAYS:
            wrong = reasons.of("number_out_of_range", least=1, most=repairs.MAX_TERM_DAYS, value=str(value))
            raise FieldError(name, wrong)
    with transaction.atomic():
        row = VendorTerms.objects.select_for_update().filter(vendor=vendor).first()
        before = {name: getattr(row, name, None) for name in days}
        changed = {
            name: audit.Change(before=before[name], after=value)
            for name, value in days.items()
            if before[name] != value
        }
        if not changed:
            return row
        if any(value is not None for value in days.values()):
            given = {**days, "changed_by": actor, "changed_at": now}
            row, _made = VendorTerms.objects.update_or_create(vendor=vendor, defaults=given)
        else:
            VendorTerms.objects.filter(vendor=vendor).delete()
            row = None
        ledger.record("", audit.VendorTermsChanged(vendor=vendor, changed=changed, reason=reason), actor=actor, now=now)
        doorbell.publish("repair", 0)
    return row
