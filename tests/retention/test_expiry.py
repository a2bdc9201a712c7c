"""Texts expire by class and month; holds win; a killed run continues; the verifier understands."""

import hashlib
from typing import Any

import orjson
import pytest
from django.db import DatabaseError, connection, transaction

from erasure import erasure_requests
from erasure.models import LegalHold
from erasure.recorded_holds import HoldNotRecorded
from investigation.fulltext import indexer
from investigation.models import EffectText
from journal import body_partitions, entries, erasures
from journal.models import Body, Entry, Erasure
from ledger.models import Effect
from monitoring.models import JobHeartbeat
from proofs.verifier import gatebook_verify
from retention import expiry, retention_dry_run, retention_sets
from retention.models import RetentionSet
from retention.recorded_tools import ToolNotRecorded
from retention.retention_dry_run import sum_due
from retention.retention_yaml import parse_retention
from sessions import artifacts
from sessions.models import Artifact
from tests.erasure.conftest import Office
from tests.journal.positions import RANGE, Jump
from tests.journal.positions import jump as jump
from tests.ledger.rows_by_hand import World
from tests.pages.plans import assert_no_scans, explained
from tests.proofs.sealing import seal_entries, verify_here
from tests.retention.past_entries import RULES, activate, append_texts, load_counted, this_month


def with_bodies(positions: list[int]) -> list[int]:
    rows = Body.objects.filter(entry_id__in=positions).order_by("entry_id")
    return list(rows.values_list("entry_id", flat=True))


def remove_by_force(position: int) -> None:
    """Delete a body as the owner of the database can: without its triggers."""
    from db.triggers import suspend_triggers

    with transaction.atomic(), suspend_triggers(connection, ["journal_body"]):
        entries.delete_bodies([position])


def test_what_the_dry_run_counts_goes_and_nothing_else(office: Office) -> None:
    world = office.world
    old = append_texts(world, "effect.planned", ["ärger", "b"], 200)
    note = append_texts(world, "note.claimed", ["kept thirteen months"], 200)
    older = append_texts(world, "note.claimed", ["gone"], 500)
    new = append_texts(world, "effect.planned", ["new"], 1)
    row = load_counted(world)
    due = sum_due(row.dry_run, this_month())
    sizes = [len(body.text.encode()) for body in Body.objects.filter(entry_id__in=old)]
    assert due == {"short": [2, sum(sizes), 0, 0], "long": [1, due["long"][1], 0, 0]}
    assert sum(sum(n[:1]) for months in row.dry_run.values() for n in months.values()) == 5
    assert expiry.run_retention().bodies == 0  # loaded and counted is not in force

    retention_sets.activate_retention_set(row.pk, world.project, row.counted_at_us)
    before = {e.position: bytes(e.body_commit or b"") for e in Entry.objects.all()}
    assert expiry.run_retention().bodies == 3
    assert with_bodies([*old, *note, *older, *new]) == [*note, *new]
    stored = Erasure.objects.get(entry_id=old[0])
    assert stored.expired_by is not None
    named = Entry.objects.get(position=stored.expired_by)
    facts = orjson.loads(named.facts)
    assert (named.kind, facts["class"], facts["count"]) == ("retention.expired", "short", 2)
    assert facts["positions"] == f"{old[0]}-{old[1]}"
    assert stored.reason == "class short, kept 60 days"
    after = Entry.objects.filter(position__in=before)
    assert {e.position: bytes(e.body_commit or b"") for e in after} == before
    assert expiry.run_retention().bodies == 0


def test_a_set_that_the_owner_forged_removes_nothing(office: Office) -> None:
    """The row is changed without its triggers; the journal says what was loaded and activated."""
    from db.triggers import suspend_triggers

    world = office.world
    kept = append_texts(world, "note.claimed", ["kept thirteen months"], 200)
    row = activate(world)
    rules = {**row.rules, "default": "short"}
    text = row.text.replace("13 months", "31 days")
    digest = hashlib.sha256(text.encode()).hexdigest()
    for values in (
        {"rules": rules},
        {"text": text, "sha256": digest, "rules": parse_retention(text)},
        {"activation_position": (row.activation_position or 0) + 1},
    ):
        with transaction.atomic():
            with suspend_triggers(connection, ["retention_retentionset"]):
                RetentionSet.objects.filter(pk=row.pk).update(**values)
            with pytest.raises(retention_sets.SetNotRecorded, match="Nothing was removed"):
                expiry.run_retention()
            transaction.set_rollback(True)
    assert with_bodies(kept) == kept
    assert expiry.run_retention().bodies == 0


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="SQLite uses a partial index only for its exact condition"
)
def test_a_run_scans_no_table_that_grows(office: Office) -> None:
    """A run of the job costs the same however long the journal is."""
    effect = office.world.write(Effect)
    append_texts(office.world, "effect.planned", [{"tool": effect.tool}], 200, effect=effect.id)
    activate(office.world)
    with explained() as plans:
        assert expiry.run_retention().bodies == 1
    for index in ("entry_by_kind", "first_occurrence_by_position"):
        assert any(index in plan for plan in plans.values())
    assert_no_scans(plans)


def test_a_tool_that_the_owner_forged_removes_nothing(office: Office) -> None:
    """A rule for a tool reads the row, which its plan confirms while that has its text."""
    from db.triggers import suspend_triggers

    world, effect = office.world, office.world.write(Effect, tool="pay.out")
    plan = {"tool": "pay.out", "arguments": {}}
    (kept,) = append_texts(world, "effect.planned", [plan], 200, effect=effect.id)
    (gone,) = append_texts(world, "effect.acknowledged", ["sent"], 200, effect=effect.id)
    activate(world)

    def set_tool(tool: str) -> None:
        with transaction.atomic(), suspend_triggers(connection, ["ledger_effect"]):
            Effect.objects.filter(pk=effect.pk).update(tool=tool)

    for tool in ("file.read", "pay"):
        set_tool(tool)
        with pytest.raises(ToolNotRecorded, match="Nothing was removed"):
            expiry.run_retention()
        assert with_bodies([kept, gone]) == [kept, gone]
    set_tool("pay.out")
    assert expiry.run_retention().bodies == 1
    assert with_bodies([kept, gone]) == [kept]
    # An effect of which a text is gone is not compared: nothing is left to compare it with.
    late = append_texts(world, "effect.failed", ["late"], 200, effect=effect.id)
    remove_by_force(kept)
    set_tool("file.read")
    assert expiry.run_retention().bodies == 1
    assert with_bodies(late) == []


def test_a_legal_hold_wins_until_it_is_released(office: Office) -> None:
    world = office.world
    positions = append_texts(world, "effect.planned", ["about jane", "other"], 200)
    hold = erasure_requests.set_legal_hold(
        office.first, world.project, reason="case 12", words=["jane"]
    )
    row = activate(world)
    assert sum_due(row.dry_run, this_month())["short"][0::3] == [1, 1]
    assert expiry.run_retention().bodies == 1
    assert with_bodies(positions) == positions[:1]
    erasure_requests.release_legal_hold(hold.pk, world.project, office.first)
    assert expiry.run_retention().bodies == 1
    assert with_bodies(positions) == []


def test_a_hold_that_the_owner_emptied_stops_the_expiry(office: Office) -> None:
    """The owner empties the words for as long as the job runs."""
    from db.triggers import suspend_triggers

    world = office.world
    positions = append_texts(world, "effect.planned", ["about jane", "other"], 200)
    hold = erasure_requests.set_legal_hold(
        office.first, world.project, reason="case 12", words=["jane"]
    )
    activate(world)
    stored = LegalHold.objects.filter(pk=hold.pk)
    with transaction.atomic(), suspend_triggers(connection, ["erasure_legalhold"]):
        stored.update(words=[])
    with pytest.raises(HoldNotRecorded, match="Nothing was erased"):
        expiry.run_retention()
    assert with_bodies(positions) == positions
    with transaction.atomic(), suspend_triggers(connection, ["erasure_legalhold"]):
        stored.update(words=["jane"])
    assert expiry.run_retention().bodies == 1


def test_a_forged_hold_of_a_project_stops_no_other_project(office: Office) -> None:
    """Neither its expiry nor the dry run of its new set, whichever project comes first."""
    from db.triggers import suspend_triggers

    worlds = [office.world, World(last_number=1_000)]
    holds = [
        erasure_requests.set_legal_hold(office.first, world.project, reason="x", words=["jane"])
        for world in worlds
    ]
    for world in worlds:
        activate(world)
    for broken in (0, 1):
        stored = LegalHold.objects.filter(pk=holds[broken].pk)
        places = [append_texts(w, "effect.planned", [f"text {broken}"], 200) for w in worlds]
        retention_sets.load_retention_set(worlds[broken].project, RULES.replace("60", "90"))
        with transaction.atomic(), suspend_triggers(connection, ["erasure_legalhold"]):
            stored.update(words=[])
        with pytest.raises(HoldNotRecorded, match="If the pepper was replaced"):
            expiry.run_retention()
        assert [with_bodies(some) for some in places] == [
            places[number] if number == broken else [] for number in (0, 1)
        ]
        with transaction.atomic(), suspend_triggers(connection, ["erasure_legalhold"]):
            stored.update(words=["jane"])
        assert expiry.run_retention().bodies == 1


def test_a_run_that_is_killed_in_a_batch_continues(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = office.world
    positions = append_texts(world, "effect.planned", [str(n) for n in range(7)], 200)
    activate(world)
    monkeypatch.setattr(expiry, "WINDOW", 3)
    delete, calls = entries.delete_bodies, []

    def delete_and_die(some: Any) -> None:
        delete(some)
        calls.append(some)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(entries, "delete_bodies", delete_and_die)
    with pytest.raises(KeyboardInterrupt):
        expiry.run_retention()
    left = with_bodies(positions)
    assert 0 < len(left) < 7  # the first batch is whole, nothing of the second one is stored
    assert Erasure.objects.filter(expired_by__isnull=False).count() == 7 - len(left)
    monkeypatch.setattr(entries, "delete_bodies", delete)
    assert expiry.run_retention().bodies == len(left)
    facts = [orjson.loads(e.facts) for e in Entry.objects.filter(kind="retention.expired")]
    assert sum(row["count"] for row in facts) == 7


@pytest.mark.usefixtures("one_window")
def test_the_verifier_tells_expired_bodies_from_missing_ones(office: Office) -> None:
    world = office.world
    positions = append_texts(world, "effect.planned", ["a", "b", "c"], 200)
    kept = append_texts(world, "effect.planned", ["new"], 1)
    activate(world)
    assert expiry.run_retention().bodies == 3
    for sealed in (0, 1):  # before the seal reached the entry that names them, and after
        report = verify_here() if sealed else None
        if report is None:
            seal_entries()
            continue
        assert not report.is_broken, report.findings
        [finding] = {f.detail for f in report.findings if f.position in positions}
        by = Erasure.objects.get(entry_id=positions[0]).expired_by
        assert finding == f"the body expired, as entry {by} records"
        assert report.counts["erased"] == 3

    # A body that is gone although the entry does not name it, even with a row that says so.
    with transaction.atomic():
        named = Entry.objects.get(kind="retention.expired")
        with pytest.raises(DatabaseError), transaction.atomic():
            entries.delete_bodies(kept)
    remove_by_force(kept[0])
    assert [f.position for f in verify_here().findings if f.finding == "missing"] == kept
    from db.triggers import suspend_triggers

    with transaction.atomic(), suspend_triggers(connection, ["journal_erasure"]):
        Erasure.objects.create(
            entry_id=kept[0],
            project=world.project.id,
            reason="class short, kept 60 days",
            actor="gatebook",
            erased_at_us=1,
            expired_by=named.position,
        )
    missing = [f for f in verify_here().findings if f.finding == "missing"]
    assert [f.position for f in missing] == kept


def test_a_body_expires_only_with_its_entry(office: Office) -> None:
    [position] = append_texts(office.world, "effect.planned", ["a"], 200)
    other = Entry.objects.exclude(position=position).first()
    assert other is not None
    for expired_by in (position, other.position, 10**12):
        with (
            pytest.raises(DatabaseError, match="body_expires_with_its_entry"),
            transaction.atomic(),
        ):
            erasures.expire_bodies(
                office.world.project.id, [position], expired_by=expired_by, reason="x", now_us=1
            )
    assert with_bodies([position]) == [position]


def test_rules_change_only_by_a_counted_set_with_its_entry(office: Office) -> None:
    row = load_counted(office.world)
    changes: list[dict[str, Any]] = [
        {"activation_position": 1, "activated_at_us": 1},
        {"rules": {"rules": []}},
    ]
    for change in changes:
        with pytest.raises(DatabaseError, match="retention_set_"), transaction.atomic():
            RetentionSet.objects.filter(pk=row.pk).update(**change)
    with pytest.raises(DatabaseError, match="never_deleted"), transaction.atomic():
        row.delete()
    active = activate(office.world)
    assert retention_sets.load_active_set(office.world.project.id) == active
    second = activate(office.world, RULES.replace("60 days", "90 days"))
    assert retention_sets.load_active_set(office.world.project.id) == second
    assert (second.version, second.name) == (2, "test")


def test_words_and_stored_bytes_go_with_their_bodies(office: Office) -> None:
    world, content = office.world, b"report"
    effect = world.effect
    [plan] = append_texts(world, "effect.planned", ["quokka"], 200, effect=effect.id)
    type(effect).objects.filter(pk=effect.pk).update(plan_position=plan)
    sha256 = hashlib.sha256(content).hexdigest()
    stored = world.write(Artifact, sha256=sha256, size=len(content), stored_at_us=1)
    artifact_position = append_texts(world, "artifact.recorded", ["x"], 200, subject=stored.pk)[0]
    Artifact.objects.filter(pk=stored.pk).update(opened_position=artifact_position)
    file = artifacts.artifact_path(world.project.id, sha256)
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    JobHeartbeat.objects.get_or_create(name=indexer.JOB_NAME, defaults={"heartbeat_us": 1})
    indexer.update_index()
    assert "quokka" in str(EffectText.objects.get(position=effect.opened_position).words)
    activate(world, RULES + "  - {class: short, kind: artifact.*}\n")
    expiry.run_retention()
    words = EffectText.objects.filter(position=effect.opened_position)
    assert not any("quokka" in str(row.words) for row in words)
    assert not file.exists()
    stored.refresh_from_db()
    assert stored.stored_at_us is None


def test_an_expiry_that_counts_wrongly_covers_nothing() -> None:
    facts = {"positions": "3,7-9", "count": 4}
    runs = gatebook_verify.read_expired_runs(orjson.dumps(facts).decode())
    assert runs == [(3, 3), (7, 9)]
    assert entries.write_positions([3, 7, 8, 9]) == facts["positions"]
    names = gatebook_verify.ExpiredNames(
        gatebook_verify.read_expiries("gatebook", orjson.dumps(facts).decode(), 12)
    )
    assert [names.find_entry(str(n)) for n in (2, 3, 4, 7, 9, 10)] == [None, 12, None, 12, 12, None]
    wrong = orjson.dumps({**facts, "count": 3}).decode()
    assert gatebook_verify.read_expired_runs(wrong) == []


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no partitions")
def test_the_job_drops_a_partition_whose_texts_are_gone(jump: Jump) -> None:
    world = World()
    jump(20 * RANGE)
    expiry.run_retention()  # makes partitions
    old = append_texts(world, "effect.planned", [str(n) for n in range(20)], 200)
    stays = append_texts(world, "effect.planned", ["new"], 1)
    jump(21 * RANGE)
    row = retention_sets.load_retention_set(world.project, RULES)
    retention_sets.save_set(row, counted_position=20 * RANGE)  # nothing to read is below
    retention_dry_run.count_retention(row)
    active = retention_sets.activate_retention_set(row.pk, world.project, row.counted_at_us)
    retention_sets.save_set(active, progress=dict.fromkeys(("short", "long"), 20 * RANGE))
    assert body_partitions.Partition(20, 20 * RANGE, 21 * RANGE) in (
        body_partitions.load_partitions()
    )
    assert expiry.run_retention().bodies == len(old)
    lows = [partition.low for partition in body_partitions.load_partitions()]
    assert 20 * RANGE not in lows
    assert lows[-1] == 25 * RANGE  # four are ahead
    assert with_bodies([*old, *stays]) == stays
    active.refresh_from_db()
    assert active.progress["partitions"] == 0
    seal_entries()
    report = verify_here()
    assert not report.is_broken, report.findings
    assert report.counts["erased"] == len(old)
