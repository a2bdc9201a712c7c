"""Search effects by words: both databases return what plain Python finds in the same rows."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import Project
from db import raw_sql
from db.clock import now_us
from investigation.fulltext import extract, indexer, snippets, store, word_search
from investigation.fulltext.sql import OldestPosition, ProjectTerms
from investigation.fulltext.word_search import (
    find_words,
    has_all_terms,
    parse_terms,
)
from investigation.models import EffectText
from investigation.query import execute
from investigation.tasks import update_search_index
from journal import erasures
from journal.models import Entry
from ledger.models import Attempt, Effect
from monitoring import job_heartbeats
from monitoring.models import JobHeartbeat
from tests.api.api_client import Caller, new_key
from tests.fulltext.text_strategies import TEXTS
from tests.matrices import count_examples
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(organization: Organization) -> Iterator[Caller]:
    """Return an agent of the installation as an API client."""
    with connect_agent(organization.agent) as caller:
        yield caller


def newest() -> int:
    """Return the position of the newest entry."""
    return Entry.objects.order_by("-position").values_list("position", flat=True).first() or 0


def find_keys(project: Project, text: str) -> list[str]:
    """Return the keys of effects that contain all words of `text`, oldest first."""
    effects = project.effects.filter(find_words(project.id, parse_terms(text)).q)
    return list(effects.order_by("opened_position").values_list("effect_key", flat=True))


def missing(project: UUID, upto: int | None = None) -> int:
    """Return how many entries no search covers yet."""
    return indexer.load_unindexed_words(project, upto)[1].missing


def stored() -> dict[int, EffectText]:
    return {row.position: row for row in EffectText.objects.all()}


def report(worker: Caller, texts: list[str], session: str) -> None:
    """Report an effect for each of `texts`: in its plan, with a reason, and in some results."""
    items: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        reference = {"session": session, "effect_key": f"{session}/{number}"}
        arguments = {"text": text} if number % 2 else {"nested": [{"n": number}, None, [text]]}
        items.append(
            {
                "id": new_key(),
                "kind": "effect.planned",
                "tool": "shell.run",
                "arguments": arguments,
                "why": f"requested: {text}",
                **reference,
            }
        )
        if number % 3 == 0:
            result = {"result": {"output": text[::-1]}, "outcome": "ok"}
            items.append({"id": new_key(), "kind": "effect.acknowledged", **reference, **result})
    assert worker.report(items).status_code == 200


# Indexes of words, and whether the last word is a prefix.
QUESTIONS = st.lists(
    st.tuples(st.lists(st.integers(0, 99_999), min_size=1, max_size=2), st.booleans()),
    min_size=4,
    max_size=4,
)


@settings(
    max_examples=count_examples(5, 12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(TEXTS, min_size=2, max_size=6), indexed=st.booleans(), questions=QUESTIONS)
def test_both_databases_return_what_plain_python_finds(
    organization: Organization,
    worker: Caller,
    texts: list[str],
    indexed: bool,
    questions: list[tuple[list[int], bool]],
) -> None:
    """Compare indexed entries, unindexed entries and single rows, for few and many words.

    The journal grows between examples, so queries are drawn as indexes into its words.
    """
    report(worker, texts, new_key())
    if indexed:
        indexer.update_index()
    effects = {
        effect: extract.extract_words([effect.id])[0].words
        for effect in organization.project.effects.all()
    }
    vocabulary = sorted({word for words in effects.values() for word in words})
    for numbers, begins in questions:
        words = [vocabulary[number % len(vocabulary)] for number in numbers]
        terms = parse_terms(" ".join(words) + "*" * (begins and len(words[-1]) > 1))
        expected = {effect.id for effect, words in effects.items() if has_all_terms(words, terms)}
        for most in (word_search.MAX_LISTED_EFFECTS, 2, 0):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(word_search, "MAX_LISTED_EFFECTS", most)
                patched.setattr(word_search, "FIRST_LISTED", 2)
                holding = find_words(organization.project.id, terms)
            for question, answer in (
                (holding.q, expected),
                (~holding.q, {effect.id for effect in effects} - expected),
            ):
                assert (
                    set(organization.project.effects.filter(question).values_list("id", flat=True))
                    == answer
                )
            aged = [
                list(
                    organization.project.effects.filter(condition)
                    .order_by("-opened_position")
                    .values_list("opened_position", "id")
                )
                for condition in holding.by_age
            ]
            listed = [row for rows in aged for row in rows]
            assert listed == sorted(listed, reverse=True)
            assert {row[1] for row in listed} == expected
            if holding.named is not None:  # None if another project's id has the same ending
                assert holding.named == len(expected) or (
                    holding.more and holding.named < len(expected)
                )


def test_texts_of_effects_and_their_reasons_are_found_and_the_envelope_is_not(
    organization: Organization, worker: Caller
) -> None:
    worker.session()
    target = {
        "repository": "web",
        "ref": "hotfix/rounding",
        "environment": "prod-eu",
        "resource": "web@main",
    }
    plan = worker.plan(
        "e-1",
        tool="git.push",
        arguments={"Command": "make release", "n": 4711, "dry": False},
        target=target,
        why="for the release train",
        call_id="call-9",
    )
    worker.dispatch(plan)
    worker.acknowledge(
        plan, external_reference="https://forge.example/pull/17", result={"stdout": "Übertragen"}
    )
    failed = worker.plan("e-2", tool="mail.send", arguments=["to", "nobody"])
    worker.dispatch(failed)
    body = {"attempt": 1, "reason": "rejected", "detail": "mailbox full"}
    assert worker.post(f"/effects/{failed['id']}/fail", body).status_code == 200
    all_words = "git push web hotfix rounding prod eu main command make release 4711 dry false forge pull 17 stdout train"
    for round_number in range(2):  # before and after indexing
        for word in [*all_words.split(), all_words, "ÜBERTRAGEN", "rel*", "prod-eu make"]:
            assert find_keys(organization.project, word) == ["e-1"], (round_number, word)
        assert (
            find_keys(organization.project, "mailbox FULL")
            == find_keys(organization.project, "nobody")
            == ["e-2"]
        )
        for word in (
            "why",
            "call",
            "rejected",
            "outcome",
            "deploy",
            "rele",
            "git mailbox",
            "attempt",
        ):
            assert find_keys(organization.project, word) == [], (round_number, word)
        assert find_keys(organization.other, "git") == []
        assert update_search_index() == (2 if round_number == 0 else 0)
    assert set(stored()) == set(Effect.objects.values_list("opened_position", flat=True))
    assert not any(row.cut_short for row in stored().values())
    for text, label in (("release", "arguments"), ("release train", extract.REASON_LABEL)):
        shown = snippets.snippets_of_effects(
            [UUID(plan["id"]), UUID(failed["id"])], parse_terms(text)
        )
        assert [
            (snippet.label, " ".join(words for words, is_match in snippet.parts if is_match))
            for snippet in shown.values()
        ] == [(label, text)]


def test_words_of_another_project_never_match(organization: Organization, worker: Caller) -> None:
    """Cover projects whose ids have the same ending and whose words share index rows."""
    twin = Project.objects.create(
        id=UUID(organization.project.id.hex[::-1][4:] + organization.project.id.hex[-4:]),
        name="twin",
    )
    report(worker, ["secret-plan"], "s")
    indexer.update_index()
    (row,) = EffectText.objects.all()
    EffectText.objects.create(
        position=row.position + 1, project=twin, words=f" {twin.id.hex[-4:]}secret "
    )
    for most in (word_search.MAX_LISTED_EFFECTS, 0):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(word_search, "MAX_LISTED_EFFECTS", most)
            assert find_keys(organization.project, "secret") == ["s/0"]
            assert execute.count_matches(
                execute.compile_query("secret", organization.project, now_us())
            ) == (1, False)
            assert execute.count_matches(
                execute.compile_query("secret", organization.project, now_us()), 0
            ) == (0, True)
            assert Effect.objects.filter(find_words(twin.id, parse_terms("secret")).q).count() == 0


def test_a_search_covers_unindexed_entries_and_reports_those_it_misses(
    organization: Organization, worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(worker, ["first words"] * 3, "s")
    indexer.update_index()
    assert missing(organization.project.id) == 0
    read_to = newest()
    acknowledgement = {
        "session": "s",
        "effect_key": "s/1",
        "kind": "effect.acknowledged",
        "outcome": "ok",
        "result": "later",
    }
    assert worker.report([{"id": new_key(), **acknowledgement}]).status_code == 200
    report(worker, ["quite new"], "t")
    assert find_keys(organization.project, "later") == ["s/1"]
    assert find_keys(organization.project, "quite") == ["t/0"]
    assert find_keys(organization.project, "words") == ["s/0", "s/1", "s/2"]
    monkeypatch.setattr(indexer, "MAX_UNINDEXED_ENTRIES", 2)
    assert missing(organization.project.id) == 1
    assert [missing(organization.project.id, upto) for upto in (read_to, newest())] == [0, 1]
    assert missing(organization.other.id) == 0
    assert find_keys(organization.project, "later") == []
    indexer.update_index()
    assert missing(organization.project.id) == 0
    assert find_keys(organization.project, "later") == ["s/1"]


def test_only_the_first_words_of_long_text_are_indexed_and_the_row_is_marked(
    organization: Organization, worker: Caller
) -> None:
    report(worker, [" ".join(f"w{n}" for n in range(extract.MAX_EFFECT_WORDS + 5))], "s")
    indexer.update_index()
    (row,) = EffectText.objects.all()
    assert row.cut_short
    assert (
        len([word for word in str(row.words).split() if "#" not in word])
        == extract.MAX_EFFECT_WORDS
    )
    assert find_keys(organization.project, "w1990") == ["s/0"]
    assert find_keys(organization.project, f"w{extract.MAX_EFFECT_WORDS + 4}") == []


@pytest.mark.parametrize("indexed", [True, False])
def test_erased_words_are_not_found_from_the_erasure_on(
    organization: Organization, worker: Caller, indexed: bool
) -> None:
    """Drop the words from the index with the body; the rest of the effect stays searchable."""
    report(worker, ["janezzq5678qqx doe", "another"], "s")
    if indexed:
        indexer.update_index()
    assert find_keys(organization.project, "janezzq5678qqx") == ["s/0"]
    effect = organization.project.effects.get(effect_key="s/0")
    answer = Attempt.objects.get(effect=effect).answer_position
    assert effect.plan_position is not None
    assert answer is not None
    assert find_keys(organization.project, "requested doe") == ["s/0"]
    for position, there, left in (
        (effect.plan_position, "doe", ["eod", "shell"]),
        (answer, "eod", ["shell"]),
    ):
        assert find_keys(organization.project, there) == ["s/0"]
        client = organization.client("administrator")
        assert (
            client.post(f"/journal/{position}/erase/", {"reason": "ticket 88"}).status_code == 302
        )
        assert effect.opened_position not in stored()
        assert Entry.objects.filter(kind="erasure.executed").exists()
        for _look in range(2):
            assert find_keys(organization.project, there) == []
            for word in left:
                assert "s/0" in find_keys(organization.project, word)
            call_command("update_search_index", verbosity=0)
        assert effect.opened_position in stored()
    assert find_keys(organization.project, "another") == ["s/1"]
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM investigation_wordindex_data WHERE instr(block, "
                "CAST('zzq5678' AS BLOB))"
            )
            assert cursor.fetchone() == (0,)
            cursor.execute(
                "SELECT count(*) FROM investigation_wordindex_data WHERE instr(block, CAST('other' "
                "AS BLOB))"
            )
            assert cursor.fetchone() > (0,)
            cursor.execute(
                "INSERT INTO investigation_wordindex (investigation_wordindex) VALUES "
                "('integrity-check')"
            )


def test_words_read_before_an_erasure_are_not_written_after_it(
    organization: Organization, worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(worker, ["jane doe"], "s")
    effect = organization.project.effects.get()
    read = extract.extract_words
    times: list[int] = []

    def then_erase(*arguments: Any) -> list[extract.EffectText]:
        rows = read(*arguments)
        if not times and effect.plan_position is not None:
            erasures.erase_body(
                organization.project.id, effect.plan_position, reason="r", actor="p", now_us=1
            )
        times.append(len(rows))
        return rows

    monkeypatch.setattr(extract, "extract_words", then_erase)
    until = newest()
    with monkeypatch.context() as patched:
        patched.setattr(indexer, "load_last_position", lambda: until)
        indexer.update_index()
    assert times == [1, 1]
    assert "jane" not in str(stored()[effect.opened_position].words)
    assert "shell" in str(stored()[effect.opened_position].words)


def test_rows_and_index_position_are_committed_together(
    organization: Organization, worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(worker, ["one", "two"], "s")

    def killed(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(job_heartbeats, "store_position", killed)
        with pytest.raises(KeyboardInterrupt):
            indexer.update_index()
    assert stored() == {}
    assert JobHeartbeat.objects.get(name="search_index").position == 0
    indexer.update_index()
    assert len(stored()) == 2
    before = {position: row.words for position, row in stored().items()}
    # A job that another job overtook writes nothing.
    place = newest()
    EffectText.objects.all().delete()
    assert indexer._index_step(0, place) == 0
    assert stored() == {}
    call_command("update_search_index", "--again", verbosity=0)
    assert {position: row.words for position, row in stored().items()} == before


def test_newest_positions_are_listed_up_to_the_limit_and_not_below_the_oldest(
    organization: Organization,
) -> None:
    places = {
        5: "ab b",
        200_000: "ab c",
        400_000: "ab b",
        600_000: "c",
        5_000_000: "d",
        5_000_001: "abc b",
    }
    rows = [
        extract.EffectText(
            UUID(int=position).hex,
            raw_sql.uuid_as_cast_text(organization.project.id),
            position,
            frozenset(words.split()),
        )
        for position, words in places.items()
    ]
    store.store_words(rows)
    part = 1 << 15  # precision of the oldest position on PostgreSQL
    for text in ("ab", "ab c", "c", "d", "b ab", "c d", "e", "ab*", "b ab*", "zz*"):
        terms = ProjectTerms(organization.project.id, tuple(parse_terms(text)))
        expected = [
            position
            for position in sorted(places, reverse=True)
            if has_all_terms(frozenset(places[position].split()), terms.terms)
        ]
        for most in (1, 2, 3, 9):
            positions, floor = store.find_newest_positions(terms, most)
            assert (positions, floor) == (
                expected[:most],
                positions[-1] if len(expected) >= most else 0,
            ), (
                text,
                most,
            )
        oldest = EffectText.objects.values_list(OldestPosition(terms), flat=True)[0]
        if expected and "*" not in text:
            assert expected[-1] - part < oldest <= expected[-1]
        assert not expected or oldest <= expected[-1]
    assert store.find_newest_positions(
        ProjectTerms(organization.project.id, tuple(parse_terms("ab"))), 9, 200_000, 400_000
    )[0][:2] == [400_000, 200_000]
    assert store.find_newest_positions(
        ProjectTerms(organization.other.id, tuple(parse_terms("ab"))), 9
    ) == ([], 0)


def test_a_hostile_query_is_only_data(organization: Organization, worker: Caller) -> None:
    report(worker, ["near or not", "x'y"], "s")
    indexer.update_index()
    for text in ("near or not", "NEAR(not or)", '" OR near*', "near NOT or", "'near' & !'or'"):
        assert set(find_keys(organization.project, text)) <= {"s/0"}
    assert find_keys(organization.project, "x'y") == ["s/1"]
    assert (
        store.find_newest_positions(
            ProjectTerms(organization.project.id, tuple(parse_terms("near"))), 5
        )[0]
        != []
    )
