"""`manage.py verify_artifacts`: compare the stored bytes of artifacts with their hashes."""

import sys
from argparse import ArgumentParser
from collections import defaultdict
from typing import Any, Final
from uuid import UUID

import orjson
from django.core.management.base import BaseCommand

from accounts.models import Project
from importers.progress_bar import Progress
from journal.entries import SYSTEM_SOURCE
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from sessions import artifacts
from sessions.models import Artifact

DIFFERS: Final = 1  # exit code: bytes are missing or changed
_KINDS: Final = ("artifact.stored", "artifact.removed")


class Command(BaseCommand):
    """Name each artifact whose stored bytes are missing or changed."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Compare the stored bytes of every artifact with its SHA-256, and what is stored with the"
        " journal. `manage.py rebuild --check` compares these hashes with the journal. Exit code 0:"
        " all bytes are as recorded; 1: some are missing or changed, or an artifact whose bytes"
        " came is marked as not stored."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--json", action="store_true", help="a line of JSON for each artifact that differs"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Read every file once, and exit with 1 if one differs."""
        differing, count = 0, 0
        progress = Progress(sys.stderr, "artifacts", Artifact.objects.count())
        for project in Project.objects.order_by("id").values_list("id", flat=True):
            history = _ContentHistory(project)
            rows = Artifact.objects.filter(project=project).order_by("id")
            for row in rows.iterator(2_000):
                progress.advance(1)
                if row.stored_at_us is None and not history.expects_content(row):
                    continue
                count += 1
                if finding := _find_difference(row):
                    differing += 1
                    progress.close()
                    self._write_finding(row, finding, as_json=options["json"])
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


class _ContentHistory:
    """When the bytes of a project's artifacts came, and when an erasure or expiry removed them.

    Bytes that came before the first version with these entries, or with an imported bundle, are in
    none: then the row alone says whether they are stored.
    """

    def __init__(self, project: UUID) -> None:
        self._removed: dict[str, int] = {}  # SHA-256 -> last position
        self._stored: dict[UUID | None, int] = {}  # artifact -> last position
        self._contents: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        rows = Entry.objects.filter(
            IS_OF_A_RARE_KIND, project=project, kind__in=_KINDS, lane="system", source=SYSTEM_SOURCE
        ).order_by("position")
        for position, kind, subject, text in rows.values_list(
            "position", "kind", "subject", "facts"
        ).iterator(2_000):
            facts = orjson.loads(text)
            if kind == "artifact.removed":
                self._removed[facts["sha256"]] = position
            else:
                self._stored[subject] = position
                self._contents[facts["sha256"], facts["size"]].append(position)

    def expects_content(self, row: Artifact) -> bool:
        """Return True if the bytes of an artifact came, and were not removed since.

        An artifact that is recorded after equal bytes came has them from the beginning.
        """
        removed = self._removed.get(row.sha256, 0)
        return self._stored.get(row.id, 0) > removed or any(
            removed < position < row.opened_position
            for position in self._contents.get((row.sha256, row.size), ())
        )


def _find_difference(row: Artifact) -> str:
    """Return `missing`, `modified` or `unmarked`; empty if the bytes are as recorded."""
    try:
        artifacts.open_content(row.project_id, row.sha256).close()
    except OSError:
        return "missing"
    except artifacts.ChangedContent:
        return "modified"
    return "unmarked" if row.stored_at_us is None else ""
