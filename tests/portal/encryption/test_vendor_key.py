"""The key that checks a vendor's events: web has it, and not the secret of which it is made."""

from datetime import datetime
from typing import Any

import pytest

from kcover_portal.audit_stream import services as sinks
from kcover_portal.audit_stream.models import Sink
from kcover_portal.encryption import envelope
from kcover_portal.lib.errors import FieldError
from kcover_portal.operate.tasks import move_secrets
from tests.portal.api.conftest import problem
from tests.portal.encryption.conftest import Become, column
from tests.portal.repairs.test_vendor_events import SECRET, Vendor


def test_web_checks_events_and_cannot_sign_for_the_portal(become: Become, db: None, now: datetime) -> None:
    become("web")
    by: dict[str, Any] = {"actor": "user:ada", "now": now}
    given = {"address": "https://acme.example/in", "secret": SECRET, "options": {"vendor": "ACME"}}
    row = sinks.SINKS.make(Sink(name="acme", kind="webhook"), given, **by)
    become("worker")
    move_secrets()
    become("web")
    assert envelope.is_for_engine(column("secret", table="audit_stream_sink", row="acme"))
    assert not envelope.is_for_engine(column("incoming_key", table="audit_stream_sink", row="acme"))
    assert problem(Vendor().send("accept", 41), 404)["code"] == "vendor_repair_unknown"
    assert problem(Vendor("x" * 16).send("accept", 41), 403)["code"] == "vendor_signature_invalid"

    def change(new: dict[str, Any]) -> None:
        sinks.SINKS.change(row, new, reason="", **by)

    change({"options": {"vendor": "ACME Corp"}})  # the key stays
    change({"options": {}})
    with pytest.raises(FieldError) as refused:
        change({"options": {"vendor": "ACME"}})
    assert (refused.value.field, refused.value.reason.code) == ("secret", "secret_for_vendor")
    change({"options": {"vendor": "ACME"}, "secret": f"{SECRET} new"})
    assert Sink.objects.get().incoming_key == Vendor(f"{SECRET} new").key.hex()
    with pytest.raises(FieldError) as invalid:
        change({"options": {"vendor": " ACME\n"}})
    assert invalid.value.reason.code == "repair_name_invalid"
