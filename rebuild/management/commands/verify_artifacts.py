"""`manage.py verify_artifacts`: compare the stored bytes of artifacts with their hashes."""

import sys
from argparse import ArgumentParser
from typing import Any, Final

import orjson
from django.core.management.base import BaseCommand

from importers.progress_bar import Progress
from sessions import artifacts
from sessions.models import Artifact

DIFFERS: Final = 1  # exit code: bytes are missing or changed


class Command(BaseCommand):
    """Name each artifact whose stored bytes are missing or changed."""

    help = (
        "Compare the stored bytes of every artifact with its SHA-256. `manage.py rebuild --check`"
        " compares these hashes with the journal. Exit code 0: all bytes are as recorded; 1: some"
        " are missing or changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--json", action="store_true", help="a line of JSON for each artifact that differs"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Read every file once, and exit with 1 if one differs."""
        rows = Artifact.objects.filter(stored_at_us__isnull=False).order_by("id")
        differing, count = 0, rows.count()
        progress = Progress(sys.stderr, "artifacts", count)
        for row in rows.iterator(2_000):
            if finding := _find_difference(row):
                differing += 1
                progress.close()
                self._write_finding(row, finding, as_json=options["json"])
            progress.advance(1)
        progress.close()
        if not options["json"]:
            self.stdout.write(f"{count:,} stored artifacts, {differing:,} differ.")
        if differing:
            sys.exit(DIFFERS)

    def _write_finding(self, row: Artifact, finding: str, *, as_json: bool) -> None:
        if as_json:
            described = {
                "finding": finding,
                "artifact": str(row),
                "project": str(row.project_id),
                "sha256": row.sha256,
            }
            self.stdout.write(orjson.dumps(described).decode())
        else:
            path = artifacts.artifact_path(row.project_id, row.sha256)
            self.stdout.write(f"{finding}: {row}: {path}")


def _find_difference(row: Artifact) -> str:
    """Return `missing` or `modified`; empty if the bytes are as recorded."""
    try:
        artifacts.open_content(row.project_id, row.sha256).close()
    except OSError:
        return "missing"
    except artifacts.ChangedContent:
        return "modified"
    return ""
