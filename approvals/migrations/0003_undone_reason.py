"""A request can end because the person took the answer back."""

from django.db import migrations, models

_REASONS = (
    "",
    "by_agent",
    "session_ended",
    "superseded",
    "bypassed",
    "happened",
    "denied_session",
    "digest_mismatch",
    "precondition_changed",
    "requirement_changed",
    "quorum_lost",
    "by_person",
    "undone",
)


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0002_activation_position"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="gate", name="gate_reason_is_known"),
        migrations.AddConstraint(
            model_name="gate",
            constraint=models.CheckConstraint(
                condition=models.Q(("reason__one_of", _REASONS)), name="gate_reason_is_known"
            ),
        ),
    ]
