"""Policies, validation profiles, and the terms of vendors."""

from datetime import timedelta
from typing import Final

from kcover.repairs import repairs
from kcover_portal.checks.models import ValidationProfile
from kcover_portal.checks.services import validation_profiles
from kcover_portal.operate.settings_file import document
from kcover_portal.operate.settings_file.document import ordered
from kcover_portal.operate.settings_file.sections import REASON, ItemInvalid, LeftOut, Run, Section, acting
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.repairs.models import VendorTerms
from kcover_portal.repairs.services import vendor_terms

KINDS: Final = tuple(Policy.Kind.values)
ONE: Final = timedelta(microseconds=1)


class Policies(Section[document.Policy]):
    """The active policies of the portal itself, the oldest first: the older one wins where two rules are equal."""

    name, noun = "policies", "policy"

    def read(self) -> list[document.Policy]:
        rows: list[Revision] = [row for kind in KINDS for row in queries.in_force(kind) if row.policy.cluster is None]
        rows.sort(key=lambda row: (row.policy.created_at, row.policy.kind, row.policy.name))
        return [document.Policy(name=row.policy.name, kind=row.policy.kind, text=row.text) for row in rows]

    def make(self, item: document.Policy, run: Run) -> None:
        self.change(item, item, run)

    def change(self, item: document.Policy, before: document.Policy, run: Run) -> bool:
        if item.kind not in KINDS:
            raise ItemInvalid(".kind", f"must be one of {', '.join(KINDS)}")
        if not run.keep_modes and (clusters := acting(run)):
            raise LeftOut(f"it would act in {', '.join(clusters)} at once; see --keep-modes")
        run.now += ONE  # each is younger than the one before
        try:
            services.apply(item.text, name=item.name, kind=item.kind, author=run.actor, reason=REASON, now=run.now)
        except services.InvalidPolicies as error:
            first = error.problems[0]
            raise ItemInvalid(".text", f"line {first.line}, column {first.column}: {first.text}") from error
        return True


class Profiles(Section[document.Profile]):
    """The validation profiles that were changed."""

    name, noun = "profiles", "validation profile"

    def read(self) -> list[document.Profile]:
        rows = ValidationProfile.objects.order_by("name")
        return [document.Profile(name=row.name, document=ordered(row.document)) for row in rows]

    def make(self, item: document.Profile, run: Run) -> None:
        if not run.keep_modes and (clusters := acting(run)):
            raise LeftOut(f"nodes would return by it in {', '.join(clusters)} at once; see --keep-modes")
        validation_profiles.change(item.name, item.document, reason=REASON, **run.by)

    def change(self, item: document.Profile, before: document.Profile, run: Run) -> bool:
        self.make(item, run)
        return True


class Vendors(Section[document.Vendor]):
    """The terms of vendors."""

    name, noun = "vendors", "terms of"

    def read(self) -> list[document.Vendor]:
        return [
            document.Vendor(name=row.vendor, accept_days=row.accept_days, return_days=row.return_days)
            for row in VendorTerms.objects.order_by("vendor")
        ]

    def make(self, item: document.Vendor, run: Run) -> None:
        terms = repairs.Terms(accept_days=item.accept_days, return_days=item.return_days)
        vendor_terms.set_terms(item.name, terms, reason=REASON, **run.by)

    def change(self, item: document.Vendor, before: document.Vendor, run: Run) -> bool:
        self.make(item, run)
        return True
