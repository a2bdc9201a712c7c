"""The seal of the journal: one RFC 6962 tree per installation, its heads and public keys.

Nothing of it ever changes: triggers (proofs/seal_triggers.py) refuse UPDATE, DELETE and TRUNCATE. A
tile only grows at its end. Only SealProgress, a note of the running job, is overwritten.
"""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Length

from db.fields import RowNumberField
from journal.models import Entry

HASH_BYTES = 32
TILE_BYTES = 256 * HASH_BYTES
models.BinaryField.register_lookup(Length)


class SealedEntry(models.Model):
    """The place of one journal entry among the leaves of the tree."""

    log_index = RowNumberField(primary_key=True)  # from 0, without gaps, in order of position
    # No foreign key in the database: checking one locks and rewrites every sealed entry.
    entry = models.OneToOneField(
        Entry, on_delete=models.PROTECT, related_name="+", db_constraint=False
    )

    def __str__(self) -> str:
        return f"leaf {self.log_index}"


class Tile(models.Model):
    """Up to 256 consecutive hashes of one level of the tree, as C2SP tlog-tiles names them."""

    level = models.SmallIntegerField()  # 0 holds the hashes of leaves
    index = models.BigIntegerField()
    hashes = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["level", "index"], name="tile_is_stored_once"),
            models.CheckConstraint(
                condition=Q(level__gte=0, level__lte=63, index__gte=0),
                name="tile_has_level_and_index",
            ),
            models.CheckConstraint(
                condition=Q(hashes__length__gte=HASH_BYTES, hashes__length__lte=TILE_BYTES),
                name="tile_holds_1_to_256_hashes",
            ),
        ]

    def __str__(self) -> str:
        return f"tile {self.level}/{self.index}"


class TreeHead(models.Model):
    """A signed statement of the size and the root of the tree."""

    id = RowNumberField(primary_key=True)  # from 1, without gaps: the head's number on pages
    size = models.BigIntegerField()
    root = models.BinaryField()
    made_at_us = models.BigIntegerField()
    key_name = models.CharField(max_length=80)  # the origin
    key_id = models.CharField(max_length=8)  # hex; with the name it identifies the SigningKey
    note = models.TextField()  # the C2SP signed note that /proofs/log/checkpoint serves

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(id__gte=1, size__gte=0), name="tree_head_is_counted_from_one"
            ),
            models.CheckConstraint(
                condition=Q(root__length=HASH_BYTES), name="tree_head_root_is_32_bytes"
            ),
            models.CheckConstraint(condition=~Q(note=""), name="tree_head_has_a_note"),
        ]
        indexes = [
            # The first head over an entry.
            models.Index(fields=["size", "id"], name="tree_head_by_size"),
        ]

    def __str__(self) -> str:
        return f"head {self.id}"


class SigningKey(models.Model):
    """A public key that signs, or signed, tree heads."""

    name = models.CharField(max_length=80)
    key_id = models.CharField(max_length=8)  # hex
    public_key = models.BinaryField()
    first_used_us = models.BigIntegerField()
    retired_at_us = models.BigIntegerField(null=True)
    # A signed note by the key before it; empty for the first key and after the loss of a key.
    endorsement = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name", "key_id"], name="signing_key_is_stored_once"),
            models.CheckConstraint(
                condition=Q(public_key__length=HASH_BYTES), name="signing_key_is_32_bytes"
            ),
            models.CheckConstraint(
                condition=Q(retired_at_us__isnull=True) | Q(retired_at_us__gte=F("first_used_us")),
                name="signing_key_retires_after_its_use",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id}"


class SealProgress(models.Model):
    """What the sealing job waits for on PostgreSQL; one row, overwritten."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    # Positions up to this one are final once none of these transactions runs.
    position = models.BigIntegerField(default=0)
    writers = models.TextField(default="", blank=True)  # virtual transaction ids

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="seal_progress_is_one_row"),
        ]

    def __str__(self) -> str:
        return f"up to {self.position}"


class Anchor(models.Model):
    """One attempt to publish a tree head outside: a receipt, or an error."""

    id = models.BigAutoField(primary_key=True)
    tree_head = models.ForeignKey(
        TreeHead, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    name = models.CharField(max_length=32)  # in GATEBOOK_ANCHORS
    kind = models.CharField(max_length=8)
    anchored_at_us = models.BigIntegerField()  # when the attempt ended
    receipt = models.TextField(default="", blank=True)  # JSON, by kind; empty after a failure
    error = models.CharField(max_length=500, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tree_head", "name"],
                condition=Q(error=""),
                name="anchor_takes_a_head_once",
            ),
            models.CheckConstraint(
                condition=Q(error="", receipt__gt="") | (Q(receipt="") & ~Q(error="")),
                name="anchor_has_a_receipt_or_an_error",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["file", "git", "syslog", "webhook", "witness"]),
                name="anchor_kind_is_known",
            ),
        ]
        indexes = [
            models.Index(fields=["name", "id"], name="anchor_by_name"),
            models.Index(
                fields=["name", "tree_head"], name="anchor_taken_by_name", condition=Q(error="")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of head {self.tree_head_id}"
