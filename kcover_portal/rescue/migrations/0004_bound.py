from typing import Any

from django.db import migrations, models
from django.db.models import F, OuterRef, Subquery

OPEN = ("held", "waiting", "running")


def bind(apps: Any, schema_editor: Any) -> None:
    """What is open is about the machine that the cluster has now, and was let through when it was opened."""
    rescue, node = apps.get_model("rescue", "Rescue"), apps.get_model("fleet", "Node")
    uid = Subquery(node.objects.filter(pk=OuterRef("node_id")).values("uid")[:1])
    rescue.objects.filter(state__in=OPEN).update(node_uid=uid)
    rescue.objects.exclude(state="held", hold="approval", gate=0).update(isolating_at=F("opened_at"))
    approval = apps.get_model("rescue", "Approval")
    bound = Subquery(rescue.objects.filter(pk=OuterRef("rescue_id")).values("node_uid")[:1])
    approval.objects.filter(rescue__state__in=OPEN).update(node_uid=bound)


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0004_ingest"),
        ("rescue", "0003_job_restart"),
    ]

    operations = [
        migrations.AddField(
            model_name="approval",
            name="node_uid",
            field=models.CharField(blank=True, default="", max_length=64),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="rescue",
            name="isolating_at",
            field=models.DateTimeField(help_text="when the guards last let it take the node out", null=True),
        ),
        migrations.AddField(
            model_name="rescue",
            name="node_uid",
            field=models.CharField(
                blank=True, default="", help_text="its machine's, when it was opened", max_length=64
            ),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name="rescue",
            name="overrides",
            field=models.JSONField(default=dict, help_text="guards that a named person may pass over: guard to name"),
        ),
        migrations.AddField(
            model_name="rescue",
            name="passed_over",
            field=models.JSONField(default=list, help_text="what was passed over: when, before which step, and why"),
        ),
        migrations.AddField(
            model_name="step",
            name="withdraw_at",
            field=models.DateTimeField(
                help_text="when what it asked for is called back; nothing: it is not", null=True
            ),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                condition=models.Q(("withdraw_at__isnull", False)), fields=["withdraw_at"], name="steps_to_withdraw"
            ),
        ),
        migrations.RunPython(bind, migrations.RunPython.noop),
    ]
