"""manage.py vacuum_erased: remove erased text from the database's files."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from db.clock import now_us
from erasure import storage_scrub
from erasure.erasure_requests import save_request
from erasure.models import ErasureRequest
from erasure.text_columns import TEXT_TABLES


class Command(BaseCommand):
    """Rewrite the tables that can hold erased text. Run it in a quiet hour."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Rewrite the database's files so that erased text leaves them. PostgreSQL locks each table"
        " while it is rewritten; SQLite blocks writers."
    )

    def handle(self, *_args: Any, **_options: Any) -> None:
        tables = [table.model._meta.db_table for table in TEXT_TABLES if table.erasable]
        tables.append(ErasureRequest._meta.db_table)
        if left := storage_scrub.scrub_storage(tables, most_bytes=None):
            raise CommandError(left)
        for row in ErasureRequest.objects.filter(state="scrubbing"):
            save_request(row, state="done", scrubbed_at_us=now_us(), error="")
        self.stdout.write("The files hold no erased text.")
