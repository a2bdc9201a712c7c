"""`manage.py erase_body POSITION --reason "…"`: delete the body of an entry."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from erasure import single_erasure
from journal import erasures
from journal.entries import SYSTEM_SOURCE
from journal.models import Entry, Erasure

LONGEST = Erasure._meta.get_field("reason").max_length or 0


class Command(BaseCommand):
    """Destroy the body of one journal entry, with its salt."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Delete the body of a journal entry permanently."
        " The entry, its commitment and the reason stay."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "position", type=int, help="the entry's position in the journal, as pages show it"
        )
        parser.add_argument(
            "--reason", required=True, help="a legal ground or ticket, without personal data"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        position, reason = options["position"], options["reason"].strip()
        if not reason or len(reason) > LONGEST or not reason.isprintable():
            raise CommandError(f"A reason is 1 to {LONGEST} printable characters.")
        entry = Entry.objects.filter(position=position).first() if 0 < position < 2**63 else None
        if entry is None:
            raise CommandError(f"There is no entry at position {position}.")
        try:
            single_erasure.erase_single_body(
                entry.project, position, reason=reason, actor=SYSTEM_SOURCE
            )
        except (erasures.NothingToErase, single_erasure.ErasureNotJournalled) as refusal:
            raise CommandError(str(refusal)) from refusal
        return (
            f"The body of entry {position} ({entry.kind}) is destroyed."
            " The entry and its commitment stay."
        )
