"""`manage.py rebuild [--check]`: compare the rows with the journal, and restore them."""

import sys
import time
from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from accounts.models import Project
from db.operator_errors import describe_database_fault
from importers.progress_bar import Progress
from rebuild import batches, checking, run_state
from rebuild.checking import BatchResult, RebuildRefused
from rebuild.registry import list_row_checks
from rebuild.run_state import RunState

_SAVE_S: Final = 5.0  # seconds between two writings of the file of a run
_FILE: Final = "rebuild.json"
DIFFERS: Final = 1  # exit code: rows differ from the journal
FAILED: Final = 2  # exit code: nothing can be said, or nothing was restored


class Command(BaseCommand):
    """Fold all rows again from the journal; name, or restore, each that differs."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Fold effects, gates, sessions and the other derived rows again from the journal, and"
        " restore every row that differs, in one transaction. With --check, only name them."
        " Exit code 0: no row differs (any more); 1: rows differ; 2: it could not be checked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing")
        parser.add_argument("--project", metavar="NAME", help="only the rows of one project")
        parser.add_argument(
            "--table", metavar="TABLE", action="append", default=[], help="only one; repeatable"
        )
        parser.add_argument(
            "--json", action="store_true", help="a line of JSON for each difference, then a summary"
        )
        parser.add_argument(
            "--resume", action="store_true", help="go on where an interrupted run stopped"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        unknown = set(options["table"]) - {check.table for check in list_row_checks()}
        if unknown:
            names = ", ".join(sorted(check.table for check in list_row_checks()))
            raise CommandError(
                f"There is no check of {min(unknown)}. Choose {names}.", returncode=FAILED
            )
        self.as_json = options["json"]
        tables = sorted(options["table"])
        project = _find_project(options["project"])
        path = Path(settings.VAR_DIR) / _FILE
        scope = f"{project.id if project else ''} {' '.join(tables)}"
        state = run_state.load_run_state(path, scope) if options["resume"] else None
        if state is not None:
            self._write_lines(state.sessions.differences)
        else:
            state = RunState(scope)
        began = time.process_time()
        try:
            self._check(project, tables, state, path)
            if state.storage.count and not options["check"]:
                raise RebuildRefused(
                    "Rows are stored in a form that Gatebook does not write, or an index lacks"
                    " rows, as the lines above name. Correct or remove these rows as the owner of"
                    " the database, make such an index again with REINDEX, then run the command"
                    " again: until then a row may pass for another. Nothing was changed."
                )
            written = (
                checking.restore_rows(state.differing, tables)
                if state.differing.parts and not options["check"]
                else None
            )
        except RebuildRefused as refusal:
            raise CommandError(str(refusal), returncode=FAILED) from refusal
        except DatabaseError as error:
            raise CommandError(
                _describe_refusal(error, is_check=options["check"]), returncode=FAILED
            ) from error
        if written is not None and state.relations.count:
            state.relations.not_restored = sum(
                len(result.differences)
                for result in checking.check_relations(project.id if project else None, tables)
            )
        path.unlink(missing_ok=True)
        self._summarize(state, written, time.process_time() - began)
        if state.not_restored or (state.count and written is None):
            sys.exit(DIFFERS)

    def _check(
        self, project: Project | None, tables: list[str], state: RunState, path: Path
    ) -> None:
        """Check every batch; at an interruption the file of the run stays."""
        identity = project.id if project else None
        progress = Progress(sys.stderr, "sessions", batches.count_sessions(identity))
        saved_at = time.monotonic()
        try:
            for result in checking.check_batches(identity, state.after, tables):
                state.add(result)
                if result.differences:
                    progress.close()
                    self._write_differences(result)
                progress.advance(len(result.batch.sessions))
                if time.monotonic() - saved_at > _SAVE_S:
                    state.write_file(path)
                    saved_at = time.monotonic()
        except BaseException:
            state.write_file(path)
            raise
        finally:
            progress.close()

    def _write_differences(self, result: BatchResult) -> None:
        self._write_lines(
            checking.difference_to_json(difference, with_texts=True)
            for difference in result.differences
        )

    def _write_lines(self, differences: Any) -> None:
        for described in differences:
            self.stdout.write(
                orjson.dumps(described).decode() if self.as_json else _format_line(described)
            )

    def _summarize(self, state: RunState, written: Any, cpu_s: float) -> None:
        rows = sum(state.rows.values())
        if self.as_json:
            summary = {
                "rows": state.rows,
                "differences": state.count,
                "restored": written,
                "not_checked_by_this_run": _describe_earlier_run(state),
                "cpu_s": round(cpu_s, 2),
                "not_compared": [
                    {"table": table, "column": column, "reason": reason, "rows": number}
                    for (table, column, reason), number in sorted(state.unknown.items())
                ],
            }
            self.stdout.write(orjson.dumps(summary).decode())
            return
        for (table, column, reason), number in sorted(state.unknown.items()):
            self.stdout.write(f"not compared: {table}.{column} of {number:,} rows: {reason}")
        tables = len([table for table, number in state.rows.items() if number])
        checked = f"{rows:,} rows of {tables} tables in {cpu_s:.1f} s of a processor"
        if not state.count and state.earlier is None:
            self.stdout.write(f"{checked}: no row differs from the journal.")
        elif not state.count:
            self.stdout.write(f"{checked}: this run found no difference in what it checked.")
        elif written is None:
            self.stdout.write(
                f"{checked}; differences: {state.count:,}. Verify the journal, then run"
                " `manage.py rebuild` to restore the rows."
            )
        else:
            self.stdout.write(
                f"{checked}; differences: {state.count:,}; rows restored:"
                f" {sum(written.values()):,}."
            )
        if state.not_restored:
            self.stdout.write(
                f"Differences that this journal cannot restore: {state.not_restored:,}. Restore a"
                " backup, or import the bundle into an archive of its own. For a password, set"
                " another with `manage.py changepassword`."
            )
        if earlier := _describe_earlier_run(state):
            self.stdout.write(
                f"This run continued after session {earlier['up_to_session']}. Earlier sessions"
                f" ({earlier['rows']:,} of the rows) were checked on {earlier['checked_at']} by an"
                f" earlier run, according to {earlier['according_to']}, and not by this one. Run"
                " the command without --resume to check them too."
            )


def _describe_earlier_run(state: RunState) -> dict[str, Any] | None:
    """Return what this run took from the file of an earlier one, which anybody may have written."""
    if state.earlier is None:
        return None
    saved_at = datetime.fromtimestamp(state.earlier.saved_at_us / 1_000_000, UTC)
    return {
        "up_to_session": state.earlier.after,
        "rows": state.earlier.rows,
        "checked_at": saved_at.strftime("%Y-%m-%d %H:%M UTC"),
        "according_to": f"var/{_FILE}",
    }


def _describe_refusal(error: DatabaseError, *, is_check: bool) -> str:
    """Return why the database stopped the command, and what to do."""
    first_line = str(error).strip().partition("\n")[0]
    if sentence := describe_database_fault(error):
        return f"{sentence} Nothing was changed."
    if is_check:
        return (
            f"The database could not be read: {first_line}. Nothing was changed. Check the"
            " database itself, with PRAGMA integrity_check on SQLite, amcheck on PostgreSQL."
        )
    return (
        f"The database refused: {first_line}. Nothing was changed. Run this as the owner of"
        " the tables, while no other program changes the schema."
    )


def _find_project(name: str | None) -> Project | None:
    if name is None:
        return None
    project = Project.objects.filter(name=name).first()
    if project is None:
        raise CommandError(f"There is no project “{name}”.", returncode=FAILED)
    return project


_UNFOUNDED: Final = {
    "approvals_gate": "it was granted without the votes that it asks for",
    "approvals_exemption": "it was put in force without the people that it asks for",
    "approvals_exemptionvote": "the person then lacked the role",
    "erasure_erasurerequest": "who confirmed it was not a second administrator then",
    "journal_erasure": "the set in force then did not let this text expire",
    "approvals_vote": "the voter then lacked the role, or was not among those asked",
}


def _format_line(described: dict[str, Any]) -> str:
    """Return a difference as one line for a terminal."""
    key = ", ".join(f"{name}={value}" for name, value in described["key"].items())
    entry = f"entry {described['position']}" if described["position"] else "no entry"
    where = f"{described['table']} {key}"
    match described["difference"]:
        case "missing":
            return f"missing: {where}: {entry} speaks of it, and the row is gone"
        case "added":
            return f"added: {where}: no entry speaks of a row with these keys"
        case "unreadable":
            if described["expected"] is None:
                return f"unreadable: {where}: {described['stored']}"
            return (
                f"unreadable: {where}: {described['column']} is {described['stored']}, and Gatebook"
                f" writes {described['expected']}"
            )
        case "imported":
            return (
                f"imported: {where}: {described['column']} differs from what was imported ({entry})"
            )
        case "altered":
            return (
                f"altered: {where}: {described['column']} is not the value whose digest {entry} has"
            )
        case "unfounded":
            why = _UNFOUNDED.get(described["table"], "no entry before it permits it")
            return f"unfounded: {where}: {why} ({entry})"
        case "misplaced":
            return (
                f"misplaced: {where}: what it refers to is gone, or of another project or session"
            )
        case "damaged":
            return f"damaged: {where}: SQLite reports: {described['stored']}"
        case "lost":
            return f"lost: {where}: {entry} speaks of it, and no stored row is that one"
    return (
        f"changed: {where}: {described['column']} is {described['stored']!r}, and the journal gives"
        f" {described['expected']!r} ({entry})"
    )
