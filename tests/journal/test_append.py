"""Guarantees of `journal.entries` for its callers."""

import random
from dataclasses import replace
from functools import partial

import pytest
from django.db import transaction
from pytest_django import Settings

from journal import entries
from journal.entries import AppendResult, AppendStatus
from journal.models import Body, Entry
from tests.journal.committed import together
from tests.journal.drafts import NOW_US, conflicts, draft, ids, new_project, text_of

pytestmark = pytest.mark.django_db
PROJECT = new_project()


def test_positions_follow_the_order_given_whatever_the_keys() -> None:
    names = [f"{n:03}" for n in range(50)]
    random.Random(7).shuffle(names)
    results = entries.append_entries([draft(name, project=PROJECT) for name in names], NOW_US)
    assert ids(PROJECT) == names
    positions = [result.position for result in results]
    assert positions == sorted(positions)
    assert len(set(positions)) == 50
    assert {result.status for result in results} == {AppendStatus.CREATED}


def test_every_column_is_stored_as_given() -> None:
    session, effect, subject = new_project(), new_project(), new_project()
    given = draft(
        "whole",
        project=PROJECT,
        session=session,
        effect=effect,
        subject=subject,
        attempt=3,
        claimed_source="somebody else",
        lease_epoch=2**62,
        producer_seq=2**63 - 1,
        occurred_us=5,
        facts='{"outcome":"ok"}',
    )
    position = entries.append_entries([given], NOW_US)[0].position
    stored = Entry.objects.get(position=position)
    for column in (
        "source",
        "claimed_source",
        "event_id",
        "kind",
        "session",
        "effect",
        "attempt",
        "subject",
        "actor",
    ):
        assert getattr(stored, column) == getattr(given, column), column
    for column in ("lane", "lease_epoch", "producer_seq", "occurred_us", "facts", "project"):
        assert getattr(stored, column) == getattr(given, column), column
    assert stored.received_us == NOW_US


def test_a_repetition_is_a_duplicate_and_adds_nothing() -> None:
    first = entries.append_entries([draft("a", project=PROJECT)], NOW_US)[0]
    again = entries.append_entries([draft("a", project=PROJECT)], NOW_US + 1)[0]
    assert again == AppendResult(AppendStatus.DUPLICATE, first.position)
    assert ids(PROJECT) == ["a"]
    assert Entry.objects.get(position=first.position).received_us == NOW_US


def test_the_same_key_with_other_content_is_a_conflict_and_stored_once() -> None:
    first = entries.append_entries([draft("a", project=PROJECT)], NOW_US)[0]
    for _ in range(3):
        result = entries.append_entries([draft("a", '{"word":"other"}', project=PROJECT)], NOW_US)[
            0
        ]
        assert result == AppendResult(AppendStatus.CONFLICT, first.position)
    (kept,) = conflicts(PROJECT)
    assert text_of(kept.position) == '{"word":"other"}'
    assert text_of(first.position) == '{"word":"first"}'
    assert (kept.source, kept.claimed_source, kept.lane) == ("gatebook", "robot", "system")


def test_two_different_conflicts_of_one_key_are_both_stored() -> None:
    entries.append_entries([draft("a", project=PROJECT)], NOW_US)
    entries.append_entries(
        [draft("a", "{}", project=PROJECT), draft("a", "[]", project=PROJECT)], NOW_US
    )
    assert sorted(text_of(entry.position) for entry in conflicts(PROJECT)) == ["[]", "{}"]


def test_an_id_is_one_within_its_project_and_source_only() -> None:
    other = new_project()
    drafts = [
        draft("a", "1", project=PROJECT),
        draft("a", "2", project=PROJECT, source="robot/2"),
        draft("a", "3", project=other),
    ]
    assert [result.status for result in entries.append_entries(drafts, NOW_US)] == [
        AppendStatus.CREATED
    ] * 3


@pytest.mark.parametrize("known_before", [False, True])
def test_repeats_inside_one_batch_are_distinguished(known_before: bool) -> None:
    if known_before:
        entries.append_entries([draft("a", project=PROJECT)], NOW_US)
    words = [None, None, '{"word":"other"}', '{"word":"other"}', None]
    batch = [draft("a", **({"text": word} if word else {}), project=PROJECT) for word in words]
    results = [result.status for result in entries.append_entries(batch, NOW_US)]
    first = AppendStatus.DUPLICATE if known_before else AppendStatus.CREATED
    assert results == [
        first,
        AppendStatus.DUPLICATE,
        AppendStatus.CONFLICT,
        AppendStatus.CONFLICT,
        AppendStatus.DUPLICATE,
    ]
    assert len(conflicts(PROJECT)) == 1
    assert len(ids(PROJECT)) == 2


def test_a_batch_that_begins_with_a_conflict_still_finds_the_stored_entry() -> None:
    entries.append_entries([draft("a", project=PROJECT)], NOW_US)
    batch = [
        draft("a", "{}", project=PROJECT),
        draft("a", project=PROJECT),
        draft("a", "{}", project=PROJECT),
    ]
    results = [result.status for result in entries.append_entries(batch, NOW_US)]
    assert results == [AppendStatus.CONFLICT, AppendStatus.DUPLICATE, AppendStatus.CONFLICT]


def test_more_known_keys_than_a_statement_may_have_parameters_are_compared() -> None:
    batch = [draft(str(n), project=PROJECT) for n in range(1_200)]
    entries.append_entries(batch, NOW_US)
    mixed = [*batch, *(draft(f"new {n}", project=PROJECT) for n in range(3))]
    random.Random(1).shuffle(mixed)
    results = entries.append_entries(mixed, NOW_US)
    assert sum(result.status is AppendStatus.DUPLICATE for result in results) == 1_200
    assert sum(result.status is AppendStatus.CREATED for result in results) == 3


def test_an_empty_batch_appends_nothing() -> None:
    assert entries.append_entries([], NOW_US) == []


@pytest.mark.parametrize(
    "text",
    [
        r'{"output":"a\u0000b"}',
        r'{"output":"\\u0000 and \u001b[31m"}',
        '{"output":"ﷺ 𝔸 \u202e x \u2028"}',
        '{"n":1e400,"m":10000000000000000000000000000000}',
        '{"quote":"\'; DROP TABLE journal_entry; --"}',
        '{"percent":"%s %(x)s {}"}',
    ],
)
def test_a_body_comes_back_character_for_character_and_its_commitment_recomputes(text: str) -> None:
    position = entries.append_entries([draft("a", text, project=PROJECT)], NOW_US)[0].position
    body = Body.objects.select_related("entry").get(entry=position)
    assert body.text == text
    assert len(bytes(body.salt)) == 32
    assert bytes(body.entry.body_commit or b"") == entries.compute_commitment(
        bytes(body.salt), text
    )


def test_no_two_bodies_share_a_salt() -> None:
    entries.append_entries([draft(str(n), project=PROJECT) for n in range(20)], NOW_US)
    salts = {bytes(salt) for salt in Body.objects.values_list("salt", flat=True)}
    assert len(salts) == 20


def test_checking_an_unused_key_finds_and_stores_nothing() -> None:
    assert entries.compare_with_stored(draft("a", project=PROJECT), NOW_US) is None
    assert ids(PROJECT) == []


def test_a_check_separates_duplicates_from_conflicts_and_keeps_a_conflict_once() -> None:
    first = entries.append_entries([draft("a", project=PROJECT)], NOW_US)[0]
    assert entries.compare_with_stored(draft("a", project=PROJECT), NOW_US) == AppendResult(
        AppendStatus.DUPLICATE, first.position
    )
    for _ in range(2):
        result = entries.compare_with_stored(draft("a", "{}", project=PROJECT), NOW_US)
        assert result == AppendResult(AppendStatus.CONFLICT, first.position)
    assert len(conflicts(PROJECT)) == 1
    assert len(ids(PROJECT)) == 2


def test_recording_in_gatebooks_own_name_is_idempotent() -> None:
    def record() -> AppendResult:
        return entries.record_system_entry(
            PROJECT, "integrity.gap", event_id="g1", text="{}", received_us=NOW_US
        )

    first, again = record(), record()
    assert (first.status, again.status) == (AppendStatus.CREATED, AppendStatus.DUPLICATE)
    assert first.position == again.position
    stored = Entry.objects.get(position=first.position)
    assert (stored.source, stored.lane, stored.actor) == ("gatebook", "system", "gatebook")


def test_a_rolled_back_entry_was_never_recorded() -> None:
    with transaction.atomic():
        entries.append_entries([draft("a", project=PROJECT)], NOW_US)
        transaction.set_rollback(True)
    assert ids(PROJECT) == []
    assert (
        entries.append_entries([draft("a", project=PROJECT)], NOW_US)[0].status
        is AppendStatus.CREATED
    )


def test_an_id_that_gatebook_makes_needs_the_pepper(settings: Settings) -> None:
    digest = entries.keyed_digest("conflict", "robot", "a")
    assert len(digest) == 32
    assert digest == entries.keyed_digest("conflict", "robot", "a")
    settings.GATEBOOK_PEPPER = b"another pepper of thirty-two byte"
    assert digest != entries.keyed_digest("conflict", "robot", "a")


def test_threads_with_overlapping_shuffled_batches_append_each_entry_once(committed: None) -> None:
    """Two hooks of one agent send the same facts at once, in different orders."""
    everything = [draft(f"{n:03}", f'{{"n":{n}}}', project=PROJECT) for n in range(120)]

    def writer(seed: int) -> dict[AppendStatus, int]:
        chance = random.Random(seed)
        counts = dict.fromkeys(AppendStatus, 0)
        for _ in range(6):
            batch = chance.sample(everything, 70)
            with transaction.atomic():
                for result in entries.append_entries([replace(entry) for entry in batch], NOW_US):
                    counts[result.status] += 1
        return counts

    results = together(*(partial(writer, seed) for seed in range(4)))
    assert all(isinstance(result, dict) for result in results), results
    assert sum(result[AppendStatus.CONFLICT] for result in results) == 0
    stored = ids(PROJECT)
    assert (
        len(stored) == len(set(stored)) == sum(result[AppendStatus.CREATED] for result in results)
    )
    assert Body.objects.count() == len(stored)
