"""The command on a rich installation: erased bodies, imported sessions, interruptions."""

from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.conf import settings
from django.db import connection, transaction

from accounts.models import Person
from db.clock import now_us
from erasure.row_erasure import ErasureOrder, erase_matches
from erasure.row_scan import Subject, find_window
from erasure.text_columns import TEXT_TABLES
from erasure.word_match import WordMatcher
from importers.bundles import importer
from journal import entries, erasures
from journal.models import Body, Entry
from ledger.models import Effect
from rebuild import batches, checking, row_comparison
from rebuild.imported_comparison import ERASED_SINCE, ImportedComparison, compare_imported_rows
from rebuild.registry import RebuildBatch
from rebuild.run_state import RunState
from sessions.models import Item, ObservedFact, Session
from tests.bundles.conftest import Origin, members, packed
from tests.bundles.conftest import origin as origin
from tests.bundles.test_refusals import change_document
from tests.rebuild.test_forged_rows import forge, run
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db
_FORGE = ("UPDATE ledger_effect SET external_reference = 'forged' WHERE state = 'acknowledged'",)


def summarize(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a check; return its exit code and summary."""
    code, text = run("--check", "--json", *arguments)
    return code, orjson.loads(text.splitlines()[-1])


@pytest.mark.matrix
def test_an_imported_session_is_compared_with_what_was_imported(
    origin: Origin, tmp_path: Path
) -> None:
    code, summary = summarize()
    assert (code, summary["differences"]) == (0, 0)
    assert min(summary["rows"][table] for table in ("ledger_effect", "approvals_vote")) >= 1
    file = tmp_path / "session.gatebook.zip"
    file.write_bytes(origin.export())
    imported = importer.import_bundle(file, None, "ann").bundle
    code, text = run("--check", "--table", "ledger_effect", "--table", "agent_sessions_session")
    assert code == 0, text
    session = imported.session_id
    of_no_import = RebuildBatch(imported.project_id, (origin.session.id,))
    assert len(compare_imported_rows(of_no_import, []).differences) == 1
    assert compare_imported_rows(of_no_import, ["accounts_agenttoken"]) == ImportedComparison()
    effect = Effect.objects.filter(session=session, outcome="ok").values_list("id", flat=True)[0]
    for statement, table, column in (
        (
            f"UPDATE ledger_effect SET outcome = 'error' WHERE {_is(effect)}",
            "ledger_effect",
            "outcome",
        ),
        (
            f"DELETE FROM ledger_attempt WHERE {_is(effect, 'effect_id')}",
            "ledger_attempt",
            "rows",
        ),
        (
            "UPDATE investigation_importedgate SET document = '{}'",
            "investigation_importedgate",
            "document",
        ),
        (
            "UPDATE investigation_importedbundle SET cut_us = 7",
            "investigation_importedbundle",
            "cut_us",
        ),
    ):
        with transaction.atomic():
            forge((statement,))
            code, text = run("--check", "--json")
            *named, _ = map(orjson.loads, text.splitlines())
            assert code == 1
            assert {row["difference"] for row in named} == {"imported"}
            assert (table, column) in {(row["table"], row["column"]) for row in named}
            assert {row["position"] for row in named} == {imported.position}
            code, text = run()  # nothing restores them
            assert (code, "journal cannot restore" in text) == (1, True)
            transaction.set_rollback(True)
    # The archive's own administrator is in its journal: no row was added without an entry.
    code, text = run("--check", "--table", "accounts_membership")
    assert code == 0, text


def _is(identity: UUID, column: str = "id") -> str:
    """Return a condition on a column, as both databases write a UUID."""
    return f"{column} = '{identity if connection.vendor == 'postgresql' else identity.hex}'"


def test_erased_texts_are_not_compared_and_never_come_back(origin: Origin) -> None:
    session = origin.session
    with transaction.atomic():
        for body in Body.objects.filter(entry__session=session.id):
            erasures.erase_body(
                session.project_id, body.entry_id, reason="t-1", actor="p_1", now_us=now_us()
            )
    Session.objects.filter(id=session.id).update(title="", cursor="")
    Effect.objects.filter(session=session).update(external_reference="")
    code, text = run("--check")
    assert code == 0, text
    assert "its body was erased" in text
    forge(("UPDATE ledger_effect SET outcome = 'error' WHERE outcome = 'ok'",))
    assert run("--check")[0] == 1
    assert run()[0] == 0
    assert Session.objects.get(id=session.id).title == ""


@pytest.mark.matrix
def test_a_long_session_is_checked_in_parts(
    origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = summarize()
    monkeypatch.setattr(batches, "MAX_SESSION_ENTRIES", 10)
    monkeypatch.setattr(batches, "MAX_BATCH_ENTRIES", 10)
    session = RebuildBatch(origin.session.project_id, (origin.session.id,))
    assert len(list(batches.split_batch(session))) > 5
    code, summary = summarize()
    assert (code, summary["rows"]) == (0, whole[1]["rows"])
    forge(_FORGE)
    assert summarize()[0] == 1
    assert run()[0] == 0
    assert summarize()[0] == 0


def test_an_interrupted_check_goes_on_where_it_stopped(
    origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.inbox.agent.session("another")
    monkeypatch.setattr(batches, "MAX_BATCH_ENTRIES", 1)
    forge(_FORGE)
    whole = summarize()
    assert whole[0] == 1
    seen = list[Any]()

    def stop(batch: Any, checks: Any) -> Any:
        if batch.sessions:
            seen.append(batch.sessions)
            if len(seen) == 3:
                raise KeyboardInterrupt
        return row_comparison.compare_batch(batch, checks)

    monkeypatch.setattr(checking, "compare_batch", stop)
    with pytest.raises(KeyboardInterrupt):
        summarize()
    assert (Path(settings.VAR_DIR) / "rebuild.json").exists()
    # A file that an earlier version left counts for nothing.
    file = Path(settings.VAR_DIR) / "rebuild.json"
    written = file.read_bytes()
    document = orjson.loads(written)
    file.write_bytes(orjson.dumps({name: document[name] for name in ("scope", "after", "rows")}))
    assert summarize("--resume")[1]["rows"] == whole[1]["rows"]
    file.write_bytes(written)
    resumed = summarize("--resume")
    assert resumed[1]["rows"] == whole[1]["rows"]
    assert resumed[1]["differences"] == whole[1]["differences"]
    assert resumed[1]["not_checked_by_this_run"]["up_to_session"] == document["after"]
    assert summarize()[1]["not_checked_by_this_run"] is None
    assert not (Path(settings.VAR_DIR) / "rebuild.json").exists()


def test_a_planted_file_of_a_run_does_not_make_a_clean_verdict(origin: Origin) -> None:
    """Who can write var/rebuild.json can claim that all sessions were checked."""
    last = UUID(int=2**128 - 1)
    planted = RunState(" ", after=last)
    planted.sessions.rows["ledger_effect"] = 7
    forge(_FORGE)
    file = Path(settings.VAR_DIR) / "rebuild.json"
    planted.write_file(file)
    code, text = run("--check", "--resume")
    assert code == 0
    assert "no row differs" not in text
    assert text.splitlines()[-1].startswith(
        f"This run continued after session {last}. Earlier sessions (7 of the rows) were checked on"
    )
    assert "according to var/rebuild.json, and not by this one" in text
    # What is not of a session is checked again in any case.
    forge(("UPDATE accounts_membership SET role = 'administrator' WHERE role = 'viewer'",))
    planted.write_file(file)
    code, text = run("--check", "--resume")
    assert (code, "accounts_membership" in text) == (1, True)
    assert summarize()[1]["differences"] > 1


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("--project", "none"), "There is no project “none”."),
        (("--table", "none"), "There is no check of none."),
    ],
)
def test_an_unknown_name_is_refused(arguments: tuple[str, ...], answer: str, db: None) -> None:
    code, text = run("--check", *arguments)
    assert code == 2
    assert answer in text


def test_entries_of_a_bundle_say_nothing_of_people_and_settings(
    origin: Origin, tmp_path: Path
) -> None:
    assert list_differences() == []
    person = Person.objects.get(user=origin.inbox.user("reviewer"))

    def add_entries(document: dict[str, Any]) -> None:
        last = document["entries"][-1]
        forged: tuple[tuple[str, dict[str, Any]], ...] = (
            ("admin.password_reset", {"person": person.pseudonym}),
            ("admin.member_added", {"person": "p_forged", "role": "administrator"}),
            ("admin.member_removed", {"person": person.pseudonym}),
        )
        for number, (kind, facts) in enumerate(forged):
            entry = {**last, "id": f"forged-{number}", "kind": kind, "facts": facts}
            position = document["cut"]["position"] + number + 1
            entry |= {"lane": "system", "body": None, "commitment": None, "position": position}
            document["entries"].append(entry)
        document["cut"]["position"] += len(forged)

    file = packed(change_document(add_entries)(members(origin.export())), tmp_path / "b.zip")
    importer.import_bundle(file, None, "reviewer")
    assert Entry.objects.filter(kind="admin.password_reset", lane="system").exists()
    assert list_differences() == []


def test_an_erased_text_of_an_imported_row_is_no_forgery(origin: Origin, tmp_path: Path) -> None:
    agent, session = origin.inbox.agent, origin.session.id
    task = agent.post(f"/sessions/{session}/tasks", {"key": "build"}).json()["id"]
    items = [{"key": key, "state": "done"} for key in ("linux", "Jane Roe")]
    assert agent.post(f"/tasks/{task}/items", {"items": items}).status_code == 200
    for name in ("head", "Jane Roe"):
        answer = agent.post(
            f"/sessions/{session}/facts", {"name": name, "value": "4f2a", "source": "ci"}
        )
        assert answer.status_code in (200, 201)
    file = tmp_path / "session.gatebook.zip"
    file.write_bytes(origin.export())
    imported = importer.import_bundle(file, None, "ann").bundle
    subject = Subject(imported.project_id, words=("Jane Roe",), matcher=WordMatcher(["Jane Roe"]))
    for table in TEXT_TABLES:
        if table.model in (Item, ObservedFact):
            matches = find_window(table, subject, None).matches
            assert len(matches) == 1
            with transaction.atomic():
                erase_matches(table, subject, matches, ErasureOrder("p_1", "ticket 88"))
    facts = entries.dump_sorted_json({"request": "1", "counts": {}})
    with transaction.atomic():
        entries.record_system_entry(
            imported.project_id,
            "erasure.executed",
            event_id="e-1",
            text=facts,
            received_us=now_us(),
            facts=facts,
        )
    code, text = run("--check")
    assert code == 0, text
    assert ERASED_SINCE in text
    assert not Item.objects.filter(task__session=imported.session_id, key="Jane Roe").exists()
