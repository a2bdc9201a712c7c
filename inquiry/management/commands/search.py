"""manage.py search: asks the book of a project what the page Audit asks, and prints rows as JSON, one a line."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import ProgrammingError

from inquiry import columns, looks
from inquiry.column import Reader
from inquiry.query import asking, streaming
from inquiry.query.tree import Fault
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE
from sessions.models import Project

_NO_RIGHT = "42501"  # PostgreSQL's code


class Command(BaseCommand):
    help = "Ask a query and print what it finds as JSON, one row or group a line, newest first. It is put on record."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("query")
        parser.add_argument("--project", default="default")
        parser.add_argument("--limit", type=int, default=0, help="rows at most; default: all")

    def handle(self, *_args: Any, **options: Any) -> None:
        project = Project.objects.filter(name=options["project"]).first()
        if project is None:
            raise CommandError(f"There is no project {options['project']!r}.")
        try:
            entity, told = self._answer(project, options["query"], options["limit"])
        except ProgrammingError as error:
            if not _withheld(error):
                raise
            raise CommandError(
                f"This role of the database may not read what that takes ({str(error).splitlines()[0]}); the words of "
                "effects are withheld from a role that audits. Ask by fields, or as the owner of the tables."
            ) from None
        try:
            looks.searched(
                project.id, SYSTEM_SOURCE, options["query"], entity=entity, found=told, more=False
            )
        except ProgrammingError as error:  # a role that only audits writes nothing
            if not _withheld(error):
                raise
            self.stderr.write("Not put on record: this role of the database only reads.")

    def _answer(self, project: Project, text: str, limit: int) -> tuple[str, int]:
        """Print what is found, `limit` rows at most, 0 for all; what was asked for, and how many there were."""
        reader = Reader(project, now_us())
        try:
            asked = asking.understand(text, project, reader.now_us)
        except Fault as fault:
            raise CommandError(
                f"{fault.sentence}\n{text}\n{' ' * fault.at}{'^' * fault.length}"
            ) from None
        reader.follow(asked.context)
        for note in asked.context.notes:
            self.stderr.write(note)
        told = 0
        for row in self._found(asked, reader):
            if limit and told == limit:
                break
            self.stdout.write(json.dumps(row))
            told += 1
        return asked.entity.name, told

    def _found(self, asked: asking.Asked, reader: Reader) -> Any:
        rows = columns.rows(asked.entity.name)
        if asked.query.grouping is not None:
            groups = asking.answer(asked, rows).groups
            if groups is not None:
                names = columns.group_names(groups)
                yield from (
                    dict(zip(names, row, strict=True)) for row in columns.groups_told(groups)
                )
            return
        for chunk in streaming.stream(asked, rows):
            yield from (columns.told(asked.entity.name, row, reader) for row in chunk)


def _withheld(error: ProgrammingError) -> bool:
    return getattr(error.__cause__, "sqlstate", "") == _NO_RIGHT
