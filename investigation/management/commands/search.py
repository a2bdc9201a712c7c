"""manage.py search: run a search query and print rows as JSON, one per line."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import ProgrammingError

from accounts.management.project_option import add_project_option, require_project
from accounts.models import Project
from db.clock import now_us
from display import access_log
from investigation.query import execute, result_columns, stream
from investigation.query.column_types import Reader
from investigation.query.parser.ast import QueryError
from journal.entries import SYSTEM_SOURCE

_NO_RIGHT = "42501"  # PostgreSQL's code


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Run a search query and print rows or groups as JSON, one per line, newest first."
        " The search is recorded."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("query")
        add_project_option(parser)
        parser.add_argument(
            "--limit", type=int, default=0, help="maximum number of rows; default: all"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        project = require_project(options["project"])
        try:
            entity, count = self._answer(project, options["query"], options["limit"])
        except ProgrammingError as error:
            if not _withheld(error):
                raise
            raise CommandError(
                "This database role cannot read what the query needs"
                f" ({str(error).splitlines()[0]}); audit roles cannot read the words of effects."
                " Search by fields, or as the owner of the tables."
            ) from None
        try:
            access_log.record_search(
                project.id,
                SYSTEM_SOURCE,
                options["query"],
                entity=entity,
                row_count=count,
                more=False,
            )
        except ProgrammingError as error:  # audit roles cannot write
            if not _withheld(error):
                raise
            self.stderr.write("The search was not recorded: this database role is read-only.")

    def _answer(self, project: Project, text: str, limit: int) -> tuple[str, int]:
        """Print at most `limit` rows (0: all) and return the entity and the number of rows."""
        try:
            search = execute.compile_query(text, project, now_us())
        except QueryError as fault:
            raise CommandError(
                f"{fault.sentence}\n{text}\n{' ' * fault.at}{'^' * fault.length}"
            ) from None
        reader = Reader.of_context(search.context)
        for note in search.notes:
            self.stderr.write(note)
        count = 0
        for row in self._found(search, reader):
            if limit and count == limit:
                break
            self.stdout.write(json.dumps(row))
            count += 1
        return search.entity.name, count

    def _found(self, search: execute.CompiledQuery, reader: Reader) -> Any:
        rows = result_columns.prepare_rows(search.entity.name)
        if search.query.grouping is not None:
            groups = execute.load_results(search, rows).groups
            if groups is not None:
                names = result_columns.group_column_names(groups)
                yield from (
                    dict(zip(names, row, strict=True))
                    for row in result_columns.groups_to_json(groups)
                )
            return
        for chunk in stream.stream_matches(search, rows):
            yield from (
                result_columns.row_to_json(search.entity.name, row, reader) for row in chunk
            )


def _withheld(error: ProgrammingError) -> bool:
    return getattr(error.__cause__, "sqlstate", "") == _NO_RIGHT
