"""A second administrator confirms an erasure; holds win; persons, sessions and killed runs."""

import base64
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, transaction

from accounts.models import Membership, Project
from accounts.people import ensure_pseudonym
from api.models import StoredResponse
from db.errors import ChangeRefused
from db.triggers import suspend_triggers
from erasure import (
    erasure_journal,
    erasure_requests,
    erasure_runner,
    person_erasure,
    recorded_holds,
)
from erasure.models import ErasureRequest, LegalHold
from erasure.recorded_holds import HoldNotRecorded
from erasure.word_match import digest_word
from investigation.fulltext import indexer
from investigation.fulltext.tokenizer import tokenize
from investigation.models import EffectText
from journal import entries
from journal.models import Body, Entry
from ledger.models import Effect, UsedName, UsedNamePlan
from notifications.models import NotificationChannel
from rebuild import checking
from sessions.models import Message, ObservedFact, Session
from tests.erasure.conftest import ADDRESS, TRACE, Office, run_all
from tests.erasure.test_erased_everywhere import find_rows
from tests.fulltext.test_fulltext import find_keys
from tests.matrices import keep_core


def append_body(office: Office, words: str, session: Any = None, **columns: Any) -> int:
    draft = entries.Draft(
        **{
            "project": office.world.project.id,
            "source": "deploy-7",
            "event_id": entries.keyed_digest(words, str(Entry.objects.count())),
            "kind": "session.described",
            "lane": "evidence",
            "actor": "agent:1",
            "text": entries.dump_sorted_json({"text": words}),
            "session": session,
            **columns,
        }
    )
    return entries.append_entries([draft], 1_700_000_000_000_000)[0].position


def has_body(position: int) -> bool:
    return Body.objects.filter(entry=position).exists()


def test_only_a_second_administrator_confirms_what_the_preview_showed(office: Office) -> None:
    position = append_body(office, f"for {ADDRESS}")
    row = office.request(ADDRESS)
    shown = erasure_requests.digest_counts(row)
    with pytest.raises(ChangeRefused, match="Another administrator confirms it"):
        erasure_requests.confirm_erasure(row.pk, office.first, shown)
    with pytest.raises(ChangeRefused, match="You do not administer"):
        erasure_requests.confirm_erasure(row.pk, office.world.reviewer, shown)
    with pytest.raises(ChangeRefused, match="preview has changed"):
        erasure_requests.confirm_erasure(row.pk, office.second, "0" * 32)
    run_all()
    assert has_body(position)
    assert not erasure_journal.journal_path().exists()

    stored = ErasureRequest.objects.filter(pk=row.pk)
    by_first = {"confirmed_by": office.first, "confirmed_at_us": 9, "state": "confirmed"}
    by_reviewer = {**by_first, "confirmed_by": office.world.reviewer}
    for values, law in (
        (by_first, "erasure_is_confirmed_by_a_second_person"),
        (by_reviewer, "erasure_is_confirmed_by_an_administrator"),
        ({"state": "running"}, "erasure_moves_forward"),
        ({"reason": "another"}, "erasure_request_never_changes"),
        ({"words": ["another"]}, "erasure_request_never_changes"),
    ):
        with pytest.raises(IntegrityError, match=law), transaction.atomic():
            stored.update(**values)
    with pytest.raises(DatabaseError, match="never_deleted"), transaction.atomic():
        stored.delete()

    assert office.confirm(row).state == "done"
    assert not has_body(position)
    requested = Entry.objects.get(kind="erasure.requested")
    confirmed = Entry.objects.get(kind="erasure.confirmed")
    assert (requested.actor, confirmed.actor) == tuple(
        ensure_pseudonym(user) for user in (office.first, office.second)
    )
    assert requested.position < confirmed.position < Entry.objects.latest("position").position
    lines = list(erasure_journal.read_lines())
    assert [line["line"] for line in lines] == ["request", "bodies", "executed"]
    assert TRACE not in erasure_journal.journal_path().read_bytes()


@pytest.mark.parametrize(
    "forged",
    keep_core(
        ["confirmed", "running", "other words", "kept decisions"], ["confirmed", "other words"]
    ),
)
def test_a_request_that_the_owner_forged_erases_nothing(office: Office, forged: str) -> None:
    """The row is changed without its triggers; the journal says what was asked and confirmed."""
    position, other = append_body(office, f"for {ADDRESS}"), append_body(office, "about the budget")
    row = office.request(ADDRESS)
    values: dict[str, Any] = {
        "confirmed_by": office.second,
        "confirmed_at_us": 9,
        "state": "running" if forged == "running" else "confirmed",
    }
    if forged in ("other words", "kept decisions"):
        shown = erasure_requests.digest_counts(row)
        erasure_requests.confirm_erasure(row.pk, office.second, shown)
        digests = [digest_word("budget", settings.GATEBOOK_PEPPER)]
        changed = {"words": ["budget"], "word_digests": digests}
        values = changed if forged == "other words" else {"keeps_decisions": True}
    with transaction.atomic(), suspend_triggers(connection, ["erasure_erasurerequest"]):
        ErasureRequest.objects.filter(pk=row.pk).update(**values)
    with pytest.raises(erasure_requests.RequestNotRecorded, match="Nothing was erased"):
        erasure_runner.run_erasures()
    assert has_body(position)
    assert has_body(other)
    row.refresh_from_db()
    assert row.error == "RequestNotRecorded"
    assert not erasure_journal.journal_path().exists()


def test_a_hold_wins_until_it_is_released(office: Office) -> None:
    other = office.world.write(Session)
    held = append_body(office, f"to {ADDRESS}", other.id)
    about_case = append_body(office, f"case-4711 of {ADDRESS}")
    free = append_body(office, f"from {ADDRESS}", office.world.session.id)
    holds = [
        erasure_requests.set_legal_hold(
            office.first, office.world.project, reason="case 12", session=other
        ),
        erasure_requests.set_legal_hold(
            office.first, office.world.project, reason="case 13", words=["case-4711"]
        ),
    ]
    row = office.request(ADDRESS)
    assert row.counts["bodies"] == {"rows": 1, "held": 2, "kept": 0}
    row = office.confirm(row)
    assert row.erased_counts["bodies"] == {"rows": 1, "held": 2, "kept": 0}
    assert [has_body(position) for position in (held, about_case, free)] == [True, True, False]
    for hold in holds:
        erasure_requests.release_legal_hold(hold.pk, office.world.project, office.second)
    with pytest.raises(ChangeRefused, match="already released"):
        erasure_requests.release_legal_hold(holds[0].pk, office.world.project, office.second)
    office.erase(ADDRESS)
    assert [has_body(position) for position in (held, about_case)] == [False, False]


@pytest.mark.matrix
def test_a_hold_keeps_what_is_found_and_answered_from_a_held_text(office: Office) -> None:
    """Else a search would say that nothing is there, while the text stays."""
    project, words = office.world.project, f"{ADDRESS} case-4711"
    kept = [office.world.write(Session) for _ in range(2)]
    sessions = [*kept, office.world.write(Session)]
    for number, session in enumerate(sessions):
        text = words if session is kept[1] else ADDRESS
        effect = office.world.write(Effect, session=session)
        position = append_body(
            office, text, session.id, kind="effect.planned", effect=effect.id, event_id=f"c{number}"
        )
        stored = " ".join(f"0000{part}" for part in tokenize(text))
        EffectText.objects.create(
            position=effect.opened_position, project=project, words=f" {stored} "
        )
        StoredResponse.objects.create(
            project=project.id,
            source="deploy-7",
            key=f"c{number}",
            status=201,
            body=f'{{"to":"{text}"}}',
            created_us=1,
        )
        name = office.world.write(UsedName, project=project, name=f"{number}.{text}")
        UsedNamePlan.objects.create(name=name, position=position)
    for words_of_hold, session in (([], kept[0]), (["case-4711"], None)):
        erasure_requests.set_legal_hold(
            office.first, project, reason="case 12", words=words_of_hold, session=session
        )
    row = office.erase(ADDRESS)
    of_search = row.erased_counts["search"]
    assert (of_search["rows"], of_search["held"]) == (2, 4)
    assert row.erased_counts["answers"] == {"rows": 1, "held": 2, "kept": 0}
    left = Effect.objects.filter(session__in=kept).values_list("opened_position", flat=True)
    assert set(EffectText.objects.values_list("position", flat=True)) == set(left)
    assert set(StoredResponse.objects.values_list("key", flat=True)) == {"c0", "c1"}
    assert {name[:1] for name in UsedName.objects.values_list("name", flat=True)} == {"0", "1"}
    for hold in LegalHold.objects.all():
        erasure_requests.release_legal_hold(hold.pk, project, office.second)
    office.erase(ADDRESS)
    for model in (EffectText, StoredResponse, UsedName):
        assert not model._base_manager.exists(), model


def test_an_effect_that_has_the_words_in_another_order_is_still_found(office: Office) -> None:
    session = office.world.write(Session)
    for number, note in enumerate(("Jane Smith", "Smith: ask Jane", "nothing")):
        effect = office.world.write(Effect, session=session, tool="mail", effect_key=f"e-{number}")
        text = entries.dump_sorted_json({"arguments": {"note": note}})
        position = append_body(
            *(office, note, session.id), kind="effect.planned", effect=effect.id, text=text
        )
        Effect.objects.filter(pk=effect.pk).update(plan_position=position)
    indexer.update_index()
    assert find_keys(office.world.project, "jane smith") == ["e-0", "e-1"]
    office.erase("Jane Smith")
    for _look in range(2):  # before and after the next run of the index
        assert find_keys(office.world.project, "jane smith") == ["e-1"]
        assert find_keys(office.world.project, "mail") == ["e-0", "e-1", "e-2"]
        indexer.update_index()


def test_a_preview_that_the_owner_lowered_is_not_confirmed(office: Office) -> None:
    """The second person would agree to less than what goes. The job counts again."""
    position = append_body(office, f"for {ADDRESS}")
    row = office.request(ADDRESS)
    counted = row.counts
    assert counted["bodies"]["rows"] == 1
    lower = {**counted, "bodies": {"rows": 0, "held": 0, "kept": 0}}
    ErasureRequest.objects.filter(pk=row.pk).update(counts=lower)
    row.refresh_from_db()
    digest = erasure_requests.digest_counts(row)
    for person in (office.first, office.world.user):  # who may not confirm, restarts no count
        with pytest.raises(ChangeRefused, match=r"You asked for this|You do not administer"):
            erasure_requests.confirm_erasure(row.pk, person, digest)
        row.refresh_from_db()
        assert (row.state, row.counts) == ("counted", lower)
    with pytest.raises(ChangeRefused, match=r"not those that the job counted.*counted again"):
        erasure_requests.confirm_erasure(row.pk, office.second, erasure_requests.digest_counts(row))
    row.refresh_from_db()
    assert (row.state, row.counts) == ("counting", {})
    run_all()
    row.refresh_from_db()
    assert (row.state, row.counts, has_body(position)) == ("counted", counted, True)
    office.confirm(row)  # with the new numbers
    assert not has_body(position)


@pytest.mark.matrix
def test_a_count_that_the_owner_moved_on_begins_again(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner lowers what was counted so far, skips tables, or lets other words be counted."""
    append_body(office, f"for {ADDRESS}")
    row = office.ask(ADDRESS)
    stored = ErasureRequest.objects.filter(pk=row.pk)
    monkeypatch.setattr(erasure_runner, "_is_over", lambda _ends: True)
    last = erasure_runner._write_progress(erasure_runner._FILES, None)
    changes: list[dict[str, Any]] = [
        {"progress": last},
        {"counts": {}},
        {"words": ["nothing"]},
    ]
    for values in changes:
        while not (row.counts.get("bodies") or {}).get("rows"):
            erasure_runner.run_erasures()
            row.refresh_from_db()
        with transaction.atomic(), suspend_triggers(connection, ["erasure_erasurerequest"]):
            stored.update(**values)
        erasure_runner.run_erasures()
        row.refresh_from_db()
        assert row.progress["step"] == 1
        with transaction.atomic(), suspend_triggers(connection, ["erasure_erasurerequest"]):
            stored.update(words=[ADDRESS])
        row.counts = {}
    monkeypatch.undo()
    run_all()
    row.refresh_from_db()
    assert (row.state, row.counts["bodies"]["rows"]) == ("counted", 1)


@pytest.mark.matrix
def test_an_earlier_preview_is_not_confirmed_in_place_of_the_last(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner keeps an honest count of few texts, and puts it back when there are more."""
    append_body(office, f"for {ADDRESS}")
    row = office.ask(ADDRESS)
    stored = ErasureRequest.objects.filter(pk=row.pk)
    columns = ("state", "counts", "counted_at_us", "progress")
    with monkeypatch.context() as steps:
        steps.setattr(erasure_runner, "_is_over", lambda _ends: True)
        while not (row.counts.get("bodies") or {}).get("rows"):
            erasure_runner.run_erasures()
            row.refresh_from_db()
    partial = stored.values(*columns)[0]
    run_all()
    earlier = stored.values(*columns)[0]
    append_body(office, f"also for {ADDRESS}")
    for kept in (earlier, partial):
        erasure_requests.count_again(row.pk)
        if kept is earlier:
            run_all()
        with transaction.atomic(), suspend_triggers(connection, ["erasure_erasurerequest"]):
            stored.update(**kept)
        row.refresh_from_db()
        assert row.counts["bodies"]["rows"] == 1
        if kept is earlier:
            assert name_altered_counts() == [row.pk]
            with pytest.raises(ChangeRefused, match="counted again"):
                erasure_requests.confirm_erasure(
                    row.pk, office.second, erasure_requests.digest_counts(row)
                )
        run_all()
        row.refresh_from_db()
        assert (row.state, row.counts["bodies"]["rows"]) == ("counted", 2)
        assert name_altered_counts() == []
    erasure_requests.confirm_erasure(row.pk, office.second, erasure_requests.digest_counts(row))
    assert name_altered_counts() == []


def name_altered_counts() -> list[UUID]:
    """Return the requests whose preview `manage.py rebuild --check` names."""
    return [
        difference.key["id"]
        for result in checking.check_batches(None, tables=["erasure_erasurerequest"])
        for difference in result.differences
        if (difference.kind, difference.column) == ("altered", "counts")
    ]


def test_what_is_written_after_the_preview_goes_too(office: Office) -> None:
    """Work went on: the preview stays valid, and the person may count it again."""
    first = append_body(office, f"for {ADDRESS}")
    row = office.request(ADDRESS)
    second = append_body(office, f"again for {ADDRESS}")
    erasure_requests.count_again(row.pk)
    run_all()
    row.refresh_from_db()
    assert row.counts["bodies"]["rows"] == 2
    third = append_body(office, f"and again for {ADDRESS}")
    office.confirm(row)
    assert [has_body(position) for position in (first, second, third)] == [False] * 3


@pytest.mark.parametrize(
    "forged",
    keep_core(["released", "emptied", "deleted", "moved", "other kind"], ["released", "deleted"]),
)
def test_a_hold_that_the_owner_forged_stops_the_job(office: Office, forged: str) -> None:
    """The row is changed without its triggers; the journal says which holds are in force."""
    session = office.world.write(Session)
    held = append_body(office, f"about {ADDRESS}", session=session.pk)
    project = office.world.project
    keep = {"session": session} if forged == "moved" else {"words": ["about"]}
    hold = erasure_requests.set_legal_hold(office.first, project, reason="case 12", **keep)
    row = office.request(ADDRESS)
    shown = erasure_requests.digest_counts(row)
    erasure_requests.confirm_erasure(row.pk, office.second, shown)
    changes: dict[str, dict[str, Any]] = {
        "released": {"released_by": office.first, "released_at_us": 9},
        "emptied": {"words": ["nothing"]},
        "moved": {"session": office.world.write(Session)},
        "other kind": {"kind": "session", "session": office.world.write(Session)},
    }
    stored = LegalHold.objects.filter(pk=hold.pk)
    with transaction.atomic(), suspend_triggers(connection, ["erasure_legalhold"]):
        if forged == "deleted":
            stored.delete()
        else:
            stored.update(**changes[forged])
    with pytest.raises(HoldNotRecorded, match=f"entry {hold.set_position}.*Nothing was erased"):
        erasure_runner.run_erasures()
    row.refresh_from_db()
    assert (row.error, has_body(held)) == ("HoldNotRecorded", True)


def test_the_command_says_which_hold_was_forged(office: Office) -> None:
    hold = erasure_requests.set_legal_hold(
        office.first, office.world.project, reason="case 12", words=["about"]
    )
    row = office.request(ADDRESS)
    with transaction.atomic(), suspend_triggers(connection, ["erasure_legalhold"]):
        LegalHold.objects.filter(pk=hold.pk).update(words=["nothing"])
    with pytest.raises(CommandError, match=f"entry {hold.set_position}.*Nothing was erased"):
        call_command("erase_subject", "--confirm", str(row.pk), "--by", office.second.username)


def test_a_hold_that_was_released_needs_no_row_in_force(office: Office) -> None:
    """A release between the two reads of the comparison is no forgery; another project's holds are
    not compared."""
    project = office.world.project
    hold = erasure_requests.set_legal_hold(office.first, project, reason="x", words=["about"])
    recorded = recorded_holds._load_entries("erasure.hold_set", project.pk)
    assert len(recorded) == 1
    assert recorded_holds.load_recorded_holds(None) == [hold]
    erasure_requests.release_legal_hold(hold.pk, project, office.first)
    recorded_holds.require_recorded_holds([], recorded, project.pk)
    recorded_holds.require_recorded_holds([hold], [], project.pk)
    hold.set_position += 1
    with pytest.raises(HoldNotRecorded, match="sets no hold"):
        recorded_holds.require_recorded_holds([hold], [], project.pk)
    assert recorded_holds.load_recorded_holds(project.pk) == []


def test_a_word_is_not_erased_within_another_word(office: Office) -> None:
    kept = append_body(office, "annual report, also Johanna's and q7xkvz2")
    erased = append_body(office, "Ask ANN about it")
    assert office.erase("ann", "q7xkvz").erased_counts["bodies"]["rows"] == 1
    assert [has_body(kept), has_body(erased)] == [True, False]


def test_a_session_loses_all_of_its_texts_and_no_other_does(office: Office) -> None:
    world = office.world
    session, other = (
        world.write(Session, title=f"{name} session", labels={"who": name}, cursor=name)
        for name in ("first", "other")
    )
    bodies = [append_body(office, "anything", each.id) for each in (session, other)]
    for each in (session, other):
        world.write(ObservedFact, session=each, name="weather", source="radio")
    row = office.erase(session=session)
    assert row.state == "done"
    session.refresh_from_db()
    other.refresh_from_db()
    assert (session.title, session.labels, session.cursor) == ("[erased]", {}, "")
    assert session.key.startswith("[erased ")
    assert (other.title, other.labels, other.cursor) == ("other session", {"who": "other"}, "other")
    assert [has_body(position) for position in bodies] == [False, True]
    names = dict(ObservedFact.objects.values_list("session", "name"))
    assert names[session.id].startswith("[erased ")
    assert names[other.id] == "weather"


def test_a_person_keeps_only_the_pseudonym(office: Office) -> None:
    world = office.world
    person = User.objects.create(
        username="vera", email=ADDRESS, first_name="Vera", last_name="Q7xkvz-Lind"
    )
    person.set_password("slate-lantern-orbit-42")
    person.save()
    world.write(Membership, user=person, role="reviewer")
    pseudonym = ensure_pseudonym(person)
    voted = append_body(
        office, "I have seen the invoice.", kind="gate.voted", actor=pseudonym, source="gatebook"
    )
    text = entries.dump_sorted_json({"kind": "admin.member_added", "username": "vera"})
    added = append_body(office, "vera", text=text)
    named = append_body(office, "Vera  Q7xkvz-Lind asked")
    other = append_body(office, "the vera of a plant is green")
    world.write(NotificationChannel, person=person, target=ADDRESS, kind="email", enabled=True)
    world.write(Message, from_user=person)

    row = office.request(person=person)
    assert row.counts["bodies"]["rows"] >= 3
    row = office.confirm(row)
    person.refresh_from_db()
    assert row.state == "done"
    assert (person.username, person.email, person.get_full_name()) == (pseudonym, "", "")
    assert not person.is_active
    assert not Membership.objects.filter(user=person).exists()
    assert not person.has_usable_password()
    assert [has_body(position) for position in (voted, added, named, other)] == [
        *[False, False, False],
        True,
    ]
    assert find_rows() == []
    assert not NotificationChannel.objects.filter(person=person, enabled=True).exists()


def test_reasons_of_decisions_stay_if_the_request_keeps_them(office: Office) -> None:
    person = User.objects.create(username="vera")
    pseudonym = ensure_pseudonym(person)
    voted = append_body(office, "Seen.", kind="gate.voted", actor=pseudonym, source="gatebook")
    note = append_body(office, "Note.", kind="incident.noted", actor=pseudonym, source="gatebook")
    row = office.erase(person=person, keeps_decisions=True)
    assert [has_body(voted), has_body(note)] == [True, False]
    assert row.erased_counts["bodies"]["kept"] == 1


def test_the_last_administrator_of_a_project_is_not_erased(office: Office) -> None:
    alone = User.objects.create(username="alone")
    project = office.world.write(Project)
    office.world.write(Membership, project=project, user=alone, role="administrator")
    office.world.write(Membership, project=office.world.project, user=alone)
    with pytest.raises(ChangeRefused, match=f"last active administrator of {project.name}"):
        person_erasure.check_erasable_person(alone)


# The third batch is erased and never committed: there the process waits for its end.
KILLED = """
import django; django.setup()
import signal
from erasure import erasure_runner
erasure_runner.BATCH_ROWS = 3
erase, batches = erasure_runner.erase_matches, []
def stop_in_the_third(*given):
    erase(*given)
    batches.append(given)
    if len(batches) == 3:
        signal.pause()
erasure_runner.erase_matches = stop_in_the_third
erasure_runner.run_erasures()
"""


def database_url() -> str:
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    return f"postgres://{values['USER']}@{quote(str(values['HOST']), safe='')}/{values['NAME']}"


def test_a_run_that_is_killed_continues(office: Office, own_folder: Path) -> None:
    positions = [append_body(office, f"{number} {ADDRESS}") for number in range(30)]
    row = office.request(ADDRESS)
    erasure_requests.confirm_erasure(row.pk, office.second, erasure_requests.digest_counts(row))
    pepper = base64.urlsafe_b64encode(settings.GATEBOOK_PEPPER).decode()
    environment = {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": database_url(),
        "GATEBOOK_VAR": str(own_folder),
        "GATEBOOK_PEPPER": pepper,
        "GATEBOOK_SECRET_KEY": "k" * 64,
        "PATH": "/usr/bin:/bin",
    }
    connection.close()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], env=environment, cwd=settings.BASE_DIR
    )
    try:
        ends = time.monotonic() + 60
        while Body.objects.filter(entry__in=positions).count() > 24 and time.monotonic() < ends:
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert Body.objects.filter(entry__in=positions).count() == 24
    row.refresh_from_db()
    assert row.state == "running"
    ends = time.monotonic() + 60  # PostgreSQL keeps the lock of a dead process for a moment
    while row.state != "done" and time.monotonic() < ends:
        run_all()
        row.refresh_from_db()
    assert row.state == "done"
    assert row.erased_counts["bodies"]["rows"] == len(positions)
    assert find_rows() == []
