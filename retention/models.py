"""Retention sets: classes of texts, how long each is kept, and which entries belong to it."""

from django.db import models
from django.db.models import Q

from accounts.models import Project
from db.ids import new_uuid7


class RetentionSet(models.Model):
    """Classes and rules as loaded. The set that was activated last is in force."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="retention_sets")
    name = models.CharField(max_length=24)
    version = models.IntegerField()
    text = models.TextField()  # the YAML as it was loaded
    sha256 = models.CharField(max_length=64)  # of `text`
    rules = models.JSONField()  # parsed: retention/retention_yaml.py
    loaded_by = models.CharField(max_length=64)  # a pseudonym, or "gatebook" for a command
    loaded_at_us = models.BigIntegerField()
    # The dry run: {class: {month: [bodies, bytes, searchable, held]}} up to a position.
    dry_run = models.JSONField(default=dict, blank=True)
    counted_position = models.BigIntegerField(default=0)  # where it continues
    counted_end = models.BigIntegerField(default=0)  # the journal's end when it began
    counted_at_us = models.BigIntegerField(null=True)  # null: never complete
    activated_by = models.CharField(max_length=64, default="", blank=True)
    activated_at_us = models.BigIntegerField(null=True)
    activation_position = models.BigIntegerField(null=True)  # of retention.activated
    # Up to which position the expired bodies of each class are gone: {class: position}.
    progress = models.JSONField(default=dict, blank=True)
    holds_released = models.IntegerField(default=0)  # released holds when the progress began
    run_at_us = models.BigIntegerField(null=True)  # of the last complete run

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name", "version"], name="retention_set_version_is_unique"
            ),
            models.UniqueConstraint(
                fields=["project", "activation_position"], name="retention_set_activation_is_unique"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="retention_set_has_a_name"),
            models.CheckConstraint(
                condition=Q(version__gte=1), name="retention_set_versions_start_at_one"
            ),
            models.CheckConstraint(
                condition=Q(activation_position__isnull=True)
                | Q(counted_at_us__isnull=False, activated_at_us__isnull=False),
                name="retention_set_is_counted_before_active",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def is_counted(self) -> bool:
        """Whether the dry run is complete. A set in force keeps its time while it runs again."""
        return self.counted_at_us is not None and self.counted_position >= self.counted_end
