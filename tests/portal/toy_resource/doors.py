"""Where the doors name the toy: its dialogs, its REST view, its command, its export, and their addresses."""

from django.urls import include, path
from rest_framework import serializers

from kcover_portal.api import urls as api
from kcover_portal.api.v1.settings_rows import SettingsViewSet, change_body, new_body
from kcover_portal.console import settings_lists, urls as console
from kcover_portal.console.settings_dialogs import SettingsDialogs
from kcover_portal.operate import urls as operate
from kcover_portal.settings_rows.command import SettingsCommand
from tests.portal.toy_resource.beacons import BEACONS, Beacon

DIALOGS = SettingsDialogs(
    resource=BEACONS,
    page="sources",
    name="beacon",
    icon="bell",
    labels=dict(Beacon.Kind.choices),
    new_title="New beacon: %(kind)s",
    add="Add",
    title="Beacon %(name)s",
    delete_title="Delete beacon %(name)s…",
    delete_text="It goes dark.",
)
LISTING = settings_lists.listing("beacons", BEACONS)


class BeaconSerializer(serializers.ModelSerializer[Beacon]):
    """A beacon, without its token."""

    cluster = serializers.CharField(source="cluster.name")

    class Meta:
        model = Beacon
        fields = ("id", "name", "kind", "cluster", "url", "seconds", "settings", "enabled", "created_by", "created_at")


class Beacons(SettingsViewSet[Beacon]):
    """Beacons by name."""

    serializer_class = BeaconSerializer
    resource = BEACONS
    body_of_new = new_body(BEACONS, "BeaconBody", "A new beacon.")
    body_of_change = change_body(BEACONS, "BeaconPatch", "Settings to change, and the reason.")
    of_create = "Adds a beacon."
    of_delete = "Removes a beacon."


class Command(SettingsCommand):
    """Adds, changes, lists and removes beacons."""

    resource = BEACONS


urlpatterns = [
    path("", include(operate)),
    path(
        "api/",
        include(
            (
                [
                    path("v1/beacons", Beacons.as_view({"get": "list", "post": "create"}), name="beacons"),
                    path("v1/beacons/<slug:name>", Beacons.as_view(api.EDITABLE), name="beacon"),
                    *api.urlpatterns,
                ],
                "api",
            )
        ),
    ),
    path("", include(([*DIALOGS.paths("beacons/"), *console.urlpatterns], "console"))),
]
