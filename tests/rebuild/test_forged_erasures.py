"""Who erased a body, when and why is compared with the entry of its erasure or expiry."""

from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from db.clock import now_us
from db.ids import new_uuid7
from importers.bundles import importer
from journal import entries, erasures
from journal.models import Body, Entry, Erasure
from ledger.models import Effect
from rebuild import checking
from retention import expiry, retention_sets
from retention.models import RetentionSet
from tests.bundles.conftest import Origin
from tests.bundles.conftest import origin as origin
from tests.erasure.conftest import Office
from tests.erasure.conftest import committed as committed
from tests.erasure.conftest import office as office
from tests.erasure.conftest import own_folder as own_folder
from tests.rebuild.test_forged_rows import forge, run
from tests.retention.past_entries import RULES, activate, append_texts, load_counted

pytestmark = pytest.mark.django_db
TABLE = "journal_erasure"


def list_forged() -> set[tuple[str, str, int]]:
    """Return what the check names of erased bodies: (difference, column, position)."""
    return {
        (difference.kind, difference.column, difference.key["entry_id"])
        for result in checking.check_batches(None, tables=[TABLE])
        for difference in result.differences
    }


def load_rows() -> list[Any]:
    """Return every column of every row."""
    return list(Erasure.objects.order_by("entry").values())


@pytest.mark.matrix_on_postgresql
def test_a_forged_record_of_an_erasure_is_named_and_restored(
    origin: Origin, tmp_path: Path
) -> None:
    session = origin.session
    file = tmp_path / "session.gatebook.zip"
    file.write_bytes(origin.export())
    importer.import_bundle(file, None, "ann")
    with transaction.atomic():
        plan, other, kept = Body.objects.filter(entry__session=session.id).order_by("entry")[:3]
        for body in (plan, other):
            erasures.erase_body(
                session.project_id, body.entry_id, reason="t-1", actor="p_1", now_us=now_us()
            )
    code, text = run("--check")
    assert code == 0, text
    before, erased = load_rows(), plan.entry_id
    forge(
        (
            "UPDATE journal_erasure SET reason = 'never', actor = 'p_2', erased_at_us = 7,"
            f" expired_by = 1, project = '{'0' * 32}' WHERE entry_id = {erased}",
            f"DELETE FROM journal_erasure WHERE entry_id = {other.entry_id}",
            "INSERT INTO journal_erasure (entry_id, project, reason, actor, erased_at_us)"
            f" SELECT {kept.entry_id}, project, reason, actor, erased_at_us FROM journal_erasure"
            f" WHERE entry_id <> {erased} AND entry_id <> {other.entry_id} LIMIT 1",
        )
    )
    columns = ("reason", "actor", "erased_at_us", "expired_by", "project")
    assert list_forged() == {
        *(("changed", column, erased) for column in columns),
        ("missing", "", other.entry_id),
        ("added", "", kept.entry_id),
    }
    code, text = run()
    assert code == 0, text
    assert load_rows() == before
    assert list_forged() == set()
    # The reason is in the body of the entry; where that is erased too, the row is all there is.
    forge((f"UPDATE journal_erasure SET reason = 'never' WHERE entry_id = {erased}",))
    executed = Entry.objects.get(kind="erasure.executed", facts=f'{{"entry":{erased}}}')
    with transaction.atomic():
        erasures.erase_body(
            session.project_id, executed.position, reason="t-2", actor="p_1", now_us=now_us()
        )
    assert list_forged() == set()
    forge((f"UPDATE journal_erasure SET actor = 'p_2' WHERE entry_id = {erased}",))
    assert list_forged() == {("changed", "actor", erased)}


def expire_by_force(office: Office, position: int, loaded: RetentionSet, name: str) -> None:
    """Write the entry, the row and the deletion of an expiry, as the application's role can."""
    facts = {
        "class": name,
        "set": loaded.pk.hex,
        "count": 1,
        "first": position,
        "last": position,
        "positions": str(position),
    }
    with transaction.atomic():
        expired = entries.record_system_entry(
            office.world.project.pk,
            "retention.expired",
            event_id=new_uuid7().hex,
            text=entries.dump_sorted_json({"kind": "retention.expired", "class": name}),
            received_us=now_us(),
            facts=entries.dump_sorted_json(facts),
            subject=loaded.pk,
        )
        erasures.expire_bodies(
            office.world.project.pk,
            [position],
            expired_by=expired.position,
            reason=retention_sets.describe_class(loaded, name),
            now_us=now_us(),
        )


@pytest.mark.matrix_on_postgresql
def test_a_text_that_was_not_due_expires_without_foundation(office: Office) -> None:
    world = office.world
    due, note, pay = (
        append_texts(world, kind, [body], 200, effect=effect)[0]
        for kind, body, effect in (
            ("effect.planned", {"tool": "file.read"}, new_uuid7()),
            ("note.claimed", {"text": "kept for a year"}, None),
            ("effect.planned", {"tool": "pay.out"}, new_uuid7()),
        )
    )
    of_pay = Entry.objects.get(position=pay).effect
    (own,) = append_texts(
        world, "effect.planned", [{"tool": "pay.back"}], 200, effect=world.effect.id
    )
    Effect.objects.filter(pk=world.effect.pk).update(tool="pay.back")
    (paid,) = append_texts(world, "effect.acknowledged", ["paid"], 200, effect=of_pay)
    (new,) = append_texts(world, "effect.planned", [{"tool": "file.read"}], 20)
    former = activate(world)
    with transaction.atomic():  # an entry of the set that was in force
        expire_by_force(office, due, former, "short")
        assert list_forged() == set()
        transaction.set_rollback(True)
    never = load_counted(world, RULES.replace("60 days", "30 days"))
    for position, loaded, name in (
        (new, former, "short"),  # received too late
        (note, former, "short"),  # of another class
        (due, never, "short"),  # of a set that was never in force
        (due, former, "long"),
        (own, former, "short"),  # the row still has its tool, which a rule keeps
    ):
        with transaction.atomic():
            expire_by_force(office, position, loaded, name)
            assert list_forged() == {("unfounded", "expired_by", position)}
            assert run("--table", TABLE)[0] == 1  # nothing restores the text
            transaction.set_rollback(True)
    expire_by_force(office, paid, former, "short")
    assert list_forged() == set()  # a rule of effect.* lets it expire, whatever the tool
    expire_by_force(office, pay, former, "short")
    assert list_forged() == set()  # the effect has no row that names its tool


def test_a_forged_record_of_an_expiry_is_named_and_restored(office: Office) -> None:
    old = append_texts(office.world, "effect.planned", ["a", "b"], 200)
    (kept,) = append_texts(office.world, "effect.planned", ["new"], 1)
    activate(office.world)
    assert expiry.run_retention().bodies == 2
    code, text = run("--check", "--table", TABLE)
    assert code == 0, text
    before = load_rows()
    forge(
        (
            "UPDATE journal_erasure SET reason = 'class short, kept 1 days', erased_at_us = 7"
            f" WHERE entry_id = {old[0]}",
            f"UPDATE journal_erasure SET expired_by = NULL WHERE entry_id = {old[1]}",
            "INSERT INTO journal_erasure (entry_id, project, reason, actor, erased_at_us,"
            f" expired_by) SELECT {kept}, project, reason, actor, erased_at_us, expired_by"
            f" FROM journal_erasure WHERE entry_id = {old[0]}",
        )
    )
    assert list_forged() == {
        ("changed", "reason", old[0]),
        ("changed", "erased_at_us", old[0]),
        ("changed", "expired_by", old[1]),
        ("added", "", kept),
    }
    code, text = run("--table", TABLE)
    assert code == 0, text
    assert list_forged() == set()
    restored = load_rows()
    # The clock of an expiry's rows is a moment after its entry, which the restored row has.
    assert restored[0].pop("erased_at_us") <= before[0].pop("erased_at_us")
    assert restored == before
