"""The catalog: every sentence that the portal shows as a reason, one for each reason code.

A sentence is English and a template: its fields are the parameters of the reason. It is a full sentence that ends with
a full stop, unless it ends with free text, names a thing inside of another sentence, or is shown beside its field or
position. Translations are looked up by the English sentence, so each one is marked in place for ``makemessages``.

To add a reason, add its code and sentence to the module of its topic, and its translation to ``locale/``.
"""

from collections.abc import Mapping

from kcover.sentences import (
    access,
    agent_endpoint,
    approvals,
    audit,
    audit_streams,
    burn_ins,
    calls,
    checks,
    cluster_access,
    cluster_api,
    decisions,
    devices,
    encryption,
    guard_settings,
    guards,
    incidents,
    inputs,
    jobs,
    ledger,
    machines,
    needs,
    node_steps,
    notices,
    other_steps,
    parameters,
    parts,
    policies,
    portal_checks,
    preflight,
    probations,
    repairs,
    reports,
    requests,
    rescues,
    rest,
    risks,
    second_factors,
    single_sign_on,
    sources,
    standbys,
    validations,
    wire,
)
from kcover.sentences.i18n import gettext_noop as _

LIST_SEPARATOR = _(", ")
SENTENCE_SEPARATOR = _(". ")  # after a sentence that ends with free text, and so without a full stop

SENTENCES: Mapping[str, str] = {
    **decisions.SENTENCES,
    **guards.SENTENCES,
    **approvals.SENTENCES,
    **standbys.SENTENCES,
    **preflight.SENTENCES,
    **probations.SENTENCES,
    **burn_ins.SENTENCES,
    **node_steps.SENTENCES,
    **other_steps.SENTENCES,
    **machines.SENTENCES,
    **devices.SENTENCES,
    **jobs.SENTENCES,
    **repairs.SENTENCES,
    **needs.SENTENCES,
    **calls.SENTENCES,
    **cluster_access.SENTENCES,
    **cluster_api.SENTENCES,
    **encryption.SENTENCES,
    **parameters.SENTENCES,
    **parts.SENTENCES,
    **requests.SENTENCES,
    **inputs.SENTENCES,
    **policies.SENTENCES,
    **portal_checks.SENTENCES,
    **rescues.SENTENCES,
    **audit.SENTENCES,
    **audit_streams.SENTENCES,
    **ledger.SENTENCES,
    **sources.SENTENCES,
    **access.SENTENCES,
    **second_factors.SENTENCES,
    **single_sign_on.SENTENCES,
    **guard_settings.SENTENCES,
    **checks.SENTENCES,
    **risks.SENTENCES,
    **reports.SENTENCES,
    **validations.SENTENCES,
    **notices.SENTENCES,
    **incidents.SENTENCES,
    **rest.SENTENCES,
    **agent_endpoint.SENTENCES,
    **wire.SENTENCES,
}
