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
        reader, text = Reader(project, now_us()), options["query"]
        try:
            asked = asking.understand(text, project, reader.now_us)
        except Fault as fault:
            raise CommandError(f"{fault.sentence}\n{text}\n{' ' * fault.at}{'^' * fault.length}") from None
        reader.follow(asked.context)
        for note in asked.context.notes:
            self.stderr.write(note)
        told = 0
        for row in self._found(asked, reader):
            if options["limit"] and told == options["limit"]:
                break
            self.stdout.write(json.dumps(row))
            told += 1
        try:
            looks.searched(project.id, SYSTEM_SOURCE, text, entity=asked.entity.name, found=told, more=False)
        except ProgrammingError as error:  # a role that only audits writes nothing
            if getattr(error.__cause__, "sqlstate", "") != _NO_RIGHT:
                raise
            self.stderr.write("Not put on record: this role of the database only reads.")

    def _found(self, asked: asking.Asked, reader: Reader) -> Any:
        rows = columns.rows(asked.entity.name)
        if asked.query.grouping is not None:
            groups = asking.answer(asked, rows).groups
            if groups is not None:
                names = columns.group_names(groups)
                yield from (dict(zip(names, row, strict=True)) for row in columns.groups_told(groups))
            return
        for chunk in streaming.stream(asked, rows):
            yield from (columns.told(asked.entity.name, row, reader) for row in chunk)
