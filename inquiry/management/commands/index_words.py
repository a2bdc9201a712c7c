"""manage.py index_words: reads what is new into the index of words, for installations without a job worker."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from inquiry.words import indexing


class Command(BaseCommand):
    """Runs until everything is read and ends; run it every few seconds, or let the job worker do it."""

    help = "Read the words of new and changed effects, by which searches find them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--again",
            action="store_true",
            help="read every effect anew, from the journal's beginning",
        )

    def handle(self, *_args: Any, again: bool = False, **_options: Any) -> None:
        if again:
            indexing.start_over()
        done = indexing.index()
        self.stdout.write(
            f"{done.effects} effects read, up to position {done.position} of the journal."
        )
