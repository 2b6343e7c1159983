"""The console's addresses."""

from django.urls import path

from kcover_portal.console.views import audit, demo, incidents, nodes, overview, policies, rescues, session

app_name = "console"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("map.json", overview.fleet_map, name="map"),
    path("map/", overview.map_table, name="map-table"),
    path("search/", nodes.search, name="search"),
    path("nodes/", nodes.nodes, name="nodes"),
    path("nodes/<slug:cluster>/<str:name>/", nodes.node, name="node"),
    path("nodes/<slug:cluster>/<str:name>/<slug:verb>/", nodes.act, name="node-act"),
    path("incidents/", incidents.incidents, name="incidents"),
    path("incidents/<int:pk>/", incidents.incident, name="incident"),
    path("rescues/", rescues.rescues, name="rescues"),
    path("rescues/<int:pk>/", rescues.rescue, name="rescue"),
    path("rescues/<int:pk>/<slug:verb>/", rescues.act, name="rescue-act"),
    path("policies/", policies.policies, name="policies"),
    path("policies/edit/", policies.edit, name="policy-new"),
    path("policies/validate/", policies.validate, name="policy-validate"),
    path("policies/<str:name>/", policies.policy, name="policy"),
    path("policies/<str:name>/edit/", policies.edit, name="policy-edit"),
    path("audit/", audit.audit, name="audit"),
    path("audit/verify/", audit.verify, name="audit-verify"),
    path("pause/", session.pause, name="pause"),
    path("resume/", session.resume, name="resume"),
    path("demo/faults/", demo.inject, name="inject"),
    path("sign-in/", session.SignIn.as_view(), name="sign-in"),
    path("sign-out/", session.sign_out, name="sign-out"),
    path("preferences/", session.preferences, name="preferences"),
]
