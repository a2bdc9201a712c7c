"""Erases the body of one entry, for the page and the command: the erasure journal first."""

from uuid import UUID

from django.db import transaction

from db.clock import now_us
from erasure import erasure_journal, row_erasure
from journal import erasures
from journal.models import Entry, Erasure


class ErasureNotJournalled(Exception):
    """The erasure journal cannot be written, so that nothing was erased."""


def erase_single_body(project: UUID, position: int, *, reason: str, actor: str) -> Erasure:
    """Write the line that a restore repeats, then erase the body in a transaction of its own.

    The stored answer of the entry's command goes too.

    Raises NothingToErase or ErasureNotJournalled.
    """
    entry = Entry.objects.filter(project=project, position=position, body__isnull=False).first()
    if entry is not None:
        try:
            erasure_journal.append_line(
                "body",
                None,
                entry=position,
                commit=erasure_journal.shorten_commitment(entry.body_commit),
                reason=reason,
                actor=actor,
            )
        except OSError as error:
            raise ErasureNotJournalled(
                f"The erasure journal {erasure_journal.journal_path()} cannot be written"
                f" ({error.strerror}). Nothing is erased: make the file writable and try again."
            ) from error
    with transaction.atomic(durable=True):
        if entry is not None:
            return row_erasure.erase_entry_body(entry, reason=reason, actor=actor)
        return erasures.erase_body(project, position, reason=reason, actor=actor, now_us=now_us())
