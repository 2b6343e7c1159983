"""URLs under ``/api/``. The agents' endpoints (``/api/v1/agent/``) are served outside Django's URLs (see ``asgi``)."""

from typing import Any

from csp.constants import SELF
from csp.decorators import csp_replace
from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView

from kcover_portal.api.docs import Docs
from kcover_portal.api.v1 import base, policies, scopes, status
from kcover_portal.api.v1.checks import checks, preflight, preflight_gate, preflight_plans, validations
from kcover_portal.api.v1.jobs import jobs
from kcover_portal.api.v1.nodes import (
    cluster_tests,
    clusters,
    node_history,
    node_work,
    nodes,
    probations,
    standbys,
)
from kcover_portal.api.v1.people import account, namespace_routes, notifications, roles, saved_views, tokens
from kcover_portal.api.v1.record import audit, audit_sinks, evidence, proofs, reports, signing_keys
from kcover_portal.api.v1.repairs import jira_events, mail_replies, parts, repairs, vendor_events
from kcover_portal.api.v1.rescues import (
    after_close,
    approval_links,
    approvals,
    changes,
    decisions,
    incident_groups,
    incidents,
    many_nodes,
    needs,
    needs_person,
    node_actions,
    pause,
    rescues,
    safety,
)
from kcover_portal.api.v1.sources import sources

app_name = "api"

LIST: dict[str, Any] = {"get": "list"}
ITEM: dict[str, Any] = {"get": "retrieve"}
POLICY: dict[str, Any] = {"get": "retrieve", "put": "update", "delete": "destroy"}
DIFFERENCE: dict[str, Any] = {"get": "difference", "post": "proposal"}
ROLLBACK: dict[str, Any] = {"post": "rollback"}
EDITABLE: dict[str, Any] = {"get": "retrieve", "patch": "partial_update", "delete": "destroy"}

# Swagger's style sheet needs inline styles; otherwise the policy is as strict as for the pages.
relaxed = csp_replace({"style-src": [SELF, "'unsafe-inline'"], "img-src": [SELF, "data:"]})

urlpatterns = [
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", relaxed(Docs.as_view(url_name="api:schema")), name="docs"),
    path("v1/clusters", clusters.Clusters.as_view({**LIST, "post": "create"}), name="clusters"),
    path("v1/clusters/<slug:name>", clusters.Clusters.as_view({**ITEM, "patch": "partial_update"}), name="cluster"),
    path("v1/clusters/<slug:name>/test", cluster_tests.ClusterTest.as_view(), name="cluster-test"),
    path("v1/clusters/<slug:name>/guards", safety.Guards.as_view(), name="cluster-guards"),
    path("v1/changes", changes.Changes.as_view(LIST), name="changes"),
    path("v1/changes/<int:pk>", changes.Changes.as_view(ITEM), name="change"),
    path("v1/changes/<int:pk>/<slug:verb>", changes.ChangeAct.as_view(), name="change-act"),
    path("v1/maintenance", safety.Windows.as_view({"get": "list", "post": "create"}), name="maintenance"),
    path("v1/maintenance/<int:pk>", safety.Windows.as_view({"get": "retrieve", "delete": "destroy"}), name="window"),
    path("v1/nodes", nodes.Nodes.as_view(LIST), name="nodes"),
    path("v1/nodes/<slug:verb>", many_nodes.ManyNodesAct.as_view(), name="nodes-act"),
    path("v1/nodes/<slug:cluster>/<str:name>", nodes.Nodes.as_view(ITEM), name="node"),
    path("v1/nodes/<slug:cluster>/<str:name>/probation", probations.NodeProbation.as_view(), name="node-probation"),
    path(
        "v1/nodes/<slug:cluster>/<str:name>/probation/end",
        probations.EndProbation.as_view(),
        name="node-probation-end",
    ),
    path("v1/nodes/<slug:cluster>/<str:name>/figures", node_history.NodeFigures.as_view(), name="node-figures"),
    path("v1/nodes/<slug:cluster>/<str:name>/work", node_work.NodeWorkView.as_view(), name="node-work"),
    path("v1/nodes/<slug:cluster>/<str:name>/history", node_history.NodeHistory.as_view(), name="node-history"),
    path("v1/nodes/<slug:cluster>/<str:name>/<slug:verb>", node_actions.NodeAct.as_view(), name="node-act"),
    path("v1/scopes/preview", scopes.ScopePreview.as_view(), name="scopes-preview"),
    path("v1/gpus", nodes.Gpus.as_view(LIST), name="gpus"),
    path("v1/status", status.Status.as_view(), name="status"),
    path("v1/checks", checks.Checks.as_view(LIST), name="checks"),
    path("v1/check-runs", checks.CheckRuns.as_view({**LIST, "post": "create"}), name="check-runs"),
    path("v1/check-runs/<int:pk>", checks.CheckRuns.as_view(ITEM), name="check-run"),
    path("v1/check-runs/<int:pk>/stop", checks.Stop.as_view(), name="check-run-stop"),
    path("v1/profiles", validations.Profiles.as_view(), name="profiles"),
    path("v1/profiles/<slug:name>", validations.Profile.as_view(), name="profile"),
    path("v1/validations", validations.Validations.as_view({**LIST, "post": "create"}), name="validations"),
    path("v1/validations/<int:pk>", validations.Validations.as_view(ITEM), name="validation"),
    path("v1/validations/<int:pk>/cancel", validations.Cancel.as_view(), name="validation-cancel"),
    path("v1/preflight", preflight.Runs.as_view(LIST), name="preflight"),
    path("v1/preflight/reports", preflight.Reports.as_view(), name="preflight-reports"),
    path("v1/preflight/gate", preflight_gate.Gates.as_view(LIST), name="preflight-gate"),
    path("v1/preflight/plans", preflight_plans.PairPlans.as_view({**LIST, "post": "create"}), name="preflight-plans"),
    path("v1/preflight/plans/<int:pk>", preflight_plans.PairPlans.as_view(ITEM), name="preflight-plan"),
    path("v1/preflight/plans/<int:pk>/cancel", preflight_plans.Cancel.as_view(), name="preflight-plan-cancel"),
    path("v1/preflight/runs", preflight.Runs.as_view(LIST), name="preflight-runs"),
    path("v1/preflight/runs/<int:pk>", preflight.Runs.as_view(ITEM), name="preflight-run"),
    path("v1/jobs", jobs.Jobs.as_view(), name="jobs"),
    path(
        "v1/jobs/<slug:cluster>/<str:namespace>/<str:kind>/<str:name>/<slug:action>",
        jobs.JobAct.as_view(),
        name="job-act",
    ),
    path("v1/needs-person", needs_person.NeedsPersonList.as_view(), name="needs-person"),
    path("v1/needs", needs.NeedsList.as_view(), name="needs"),
    path("v1/needs/<slug:need>/acknowledge", needs.Acknowledge.as_view(), name="need-acknowledge"),
    path("v1/needs/<slug:need>/unacknowledge", needs.Unacknowledge.as_view(), name="need-unacknowledge"),
    path("v1/needs/<slug:need>/assign", needs.Assign.as_view(), name="need-assign"),
    path("v1/needs/<slug:need>/snooze", needs.Snooze.as_view(), name="need-snooze"),
    path("v1/needs/<slug:need>/note", needs.Note.as_view(), name="need-note"),
    path("v1/repairs", repairs.Repairs.as_view({"get": "list", "post": "create"}), name="repairs"),
    path("v1/repairs/terms", repairs.Terms.as_view(), name="repair-terms"),
    path("v1/repairs/jira/<slug:name>/events", jira_events.JiraEvents.as_view(), name="repair-jira-events"),
    path("v1/repairs/mail/<slug:name>/messages", mail_replies.MailReplies.as_view(), name="repair-mail-messages"),
    path("v1/repairs/vendors/<slug:name>/events", vendor_events.VendorEvents.as_view(), name="repair-vendor-events"),
    path("v1/repairs/<int:pk>", repairs.Repairs.as_view({**ITEM, "patch": "partial_update"}), name="repair"),
    path("v1/repairs/<int:pk>/<slug:verb>", repairs.RepairAct.as_view(), name="repair-act"),
    path("v1/parts", parts.Parts.as_view(LIST), name="parts"),
    path("v1/parts/<int:pk>", parts.Parts.as_view(ITEM), name="part"),
    path("v1/parts/<int:pk>/review", parts.Review.as_view(), name="part-review"),
    path("v1/placements", parts.Placements.as_view(LIST), name="placements"),
    path("v1/pause", pause.Pause.as_view(), name="pause"),
    path("v1/resume", pause.Resume.as_view(), name="resume"),
    path("v1/incidents", incidents.Incidents.as_view(LIST), name="incidents"),
    path("v1/incidents/groups", incident_groups.IncidentGroups.as_view(LIST), name="incident-groups"),
    path("v1/incidents/<int:pk>", incidents.Incidents.as_view(ITEM), name="incident"),
    path("v1/incidents/<int:pk>/after-close", after_close.AfterClose.as_view(), name="incident-after-close"),
    path("v1/incidents/<int:pk>/close", incidents.Close.as_view(), name="incident-close"),
    path("v1/events", incidents.Occurrences.as_view(LIST), name="occurrences"),
    path("v1/decisions", rescues.Decisions.as_view(LIST), name="decisions"),
    path("v1/decisions/<int:pk>", rescues.Decisions.as_view(ITEM), name="decision"),
    path("v1/rescue-actions", decisions.RescueActions.as_view(), name="rescue-actions"),
    path("v1/rescues", rescues.Rescues.as_view(LIST), name="rescues"),
    path("v1/rescues/<int:pk>", rescues.Rescues.as_view(ITEM), name="rescue"),
    path("v1/rescues/<int:pk>/approval-links", approval_links.ApprovalLinks.as_view(), name="approval-links"),
    path("v1/rescues/<int:pk>/callback", decisions.Callback.as_view(), name="rescue-callback"),
    path("v1/rescues/<int:pk>/proof", proofs.Proof.as_view(), name="rescue-proof"),
    path("v1/rescues/<int:pk>/evidence", evidence.EvidenceList.as_view(), name="rescue-evidence"),
    path("v1/rescues/<int:pk>/evidence/<int:n>", evidence.EvidenceFile.as_view(), name="rescue-evidence-file"),
    path("v1/rescues/<int:pk>/<slug:verb>", rescues.RescueAct.as_view(), name="rescue-act"),
    path("v1/approvals", approvals.Approvals.as_view(LIST), name="approvals"),
    path("v1/policies", policies.Policies.as_view({"get": "list", "post": "create"}), name="policies"),
    path("v1/policies/validate", policies.Validate.as_view(), name="policies-validate"),
    path("v1/policies/install", policies.Install.as_view(), name="policies-install"),
    path("v1/policies/packs", policies.Packs.as_view(), name="policies-packs"),
    path("v1/policies/packs/<str:name>", policies.OnePack.as_view(), name="policies-pack"),
    path("v1/policies/try", policies.Try.as_view(), name="policies-try"),
    path("v1/policies/tries/<int:pk>", policies.OneTry.as_view(), name="policies-try-one"),
    path("v1/policies/tries/<int:pk>/cancel", policies.CancelTry.as_view(), name="policies-try-cancel"),
    path("v1/policies/effective", policies.Effective.as_view(), name="policies-effective"),
    path("v1/policies/winners", policies.Winners.as_view(), name="policies-winners"),
    path("v1/policies/<str:name>", policies.Policies.as_view(POLICY), name="policy"),
    path("v1/policies/<str:name>/revisions", policies.Revisions.as_view(LIST), name="policy-revisions"),
    path("v1/policies/<str:name>/diff", policies.Policies.as_view(DIFFERENCE), name="policy-diff"),
    path("v1/policies/<str:name>/rollback", policies.Policies.as_view(ROLLBACK), name="policy-rollback"),
    path(
        "v1/standby-policies",
        policies.StandbyPolicies.as_view({"get": "list", "post": "create"}),
        name="standby-policies",
    ),
    path("v1/standby-policies/<str:name>", policies.StandbyPolicies.as_view(POLICY), name="standby-policy"),
    path(
        "v1/standby-policies/<str:name>/revisions",
        policies.StandbyRevisions.as_view(LIST),
        name="standby-policy-revisions",
    ),
    path(
        "v1/standby-policies/<str:name>/diff",
        policies.StandbyPolicies.as_view(DIFFERENCE),
        name="standby-policy-diff",
    ),
    path(
        "v1/standby-policies/<str:name>/rollback",
        policies.StandbyPolicies.as_view(ROLLBACK),
        name="standby-policy-rollback",
    ),
    path("v1/standbys", standbys.Standbys.as_view(), name="standbys"),
    path("v1/reports/reliability", reports.Reliability.as_view(), name="report-reliability"),
    path("v1/reports/lemons", reports.Lemons.as_view(), name="report-lemons"),
    path("v1/channels", notifications.Channels.as_view({"get": "list", "post": "create"}), name="channels"),
    path("v1/channels/<slug:name>", notifications.Channels.as_view(EDITABLE), name="channel"),
    path("v1/channels/<slug:name>/test", notifications.Channels.as_view({"post": "test"}), name="channel-test"),
    path("v1/audit-sinks", audit_sinks.AuditSinks.as_view({"get": "list", "post": "create"}), name="audit-sinks"),
    path("v1/audit-sinks/<slug:name>", audit_sinks.AuditSinks.as_view(EDITABLE), name="audit-sink"),
    path("v1/routes", notifications.Routes.as_view({"get": "list", "post": "create"}), name="routes"),
    path("v1/routes/<int:pk>", notifications.Routes.as_view({"get": "retrieve", "delete": "destroy"}), name="route"),
    path(
        "v1/namespace-routes",
        namespace_routes.NamespaceRoutes.as_view({"get": "list", "post": "create"}),
        name="namespace-routes",
    ),
    path(
        "v1/namespace-routes/<int:pk>",
        namespace_routes.NamespaceRoutes.as_view({"get": "retrieve", "delete": "destroy"}),
        name="namespace-route",
    ),
    path("v1/views", saved_views.Views.as_view({**LIST, "post": "create"}), name="views"),
    path("v1/views/<int:pk>", saved_views.Views.as_view(EDITABLE), name="view"),
    path("v1/views/<int:pk>/withdraw", saved_views.Views.as_view({"post": "withdraw"}), name="view-withdraw"),
    path("v1/sources", sources.Sources.as_view({"get": "list", "post": "create"}), name="sources"),
    path("v1/sources/<str:name>", sources.Sources.as_view(EDITABLE), name="source"),
    path("v1/sources/<str:name>/test", sources.Test.as_view(), name="source-test"),
    path("v1/sources/<str:name>/events", sources.Events.as_view(), name="source-events"),
    path("v1/deliveries", notifications.Deliveries.as_view(LIST), name="deliveries"),
    path("v1/deliveries/<int:pk>", notifications.Deliveries.as_view(ITEM), name="delivery"),
    path("v1/deliveries/<int:pk>/retry", notifications.Deliveries.as_view({"post": "retry"}), name="delivery-retry"),
    path("v1/audit", audit.Audit.as_view(LIST), name="audit"),
    path("v1/audit/<int:pk>", audit.Audit.as_view(ITEM), name="audit-entry"),
    path("v1/audit/verifications", audit.Verifications.as_view(), name="audit-verifications"),
    path("v1/audit/verifications/<int:pk>", audit.OneVerification.as_view(), name="audit-verification"),
    path("v1/ledger/keys", signing_keys.SigningKeys.as_view(), name="ledger-keys"),
    path("v1/account/password", account.Password.as_view(), name="account-password"),
    path("v1/roles", roles.Roles.as_view(), name="roles"),
    path("v1/roles/<slug:name>", roles.Role.as_view(), name="role"),
    path("v1/account/step-up", account.StepUp.as_view(), name="account-step-up"),
    path("v1/tokens", tokens.Tokens.as_view({"get": "list", "post": "create"}), name="tokens"),
    path("v1/tokens/<int:pk>", tokens.Tokens.as_view({"get": "retrieve", "delete": "destroy"}), name="token"),
    path("v1/tokens/<int:pk>/rotate", tokens.Tokens.as_view({"post": "rotate"}), name="token-rotate"),
    re_path(r"^(?!docs$|schema$)", base.UnknownPathView.as_view(), name="nowhere"),
]
