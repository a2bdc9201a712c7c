"""Run the word index while others write: two jobs, an uncommitted report, an erasure."""

import threading
import time
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from accounts import agents, projects, tokens
from investigation.fulltext import extract, indexer, store
from investigation.fulltext.word_search import find_words, parse_terms
from investigation.models import EffectText
from journal import erasures
from journal.models import Entry
from ledger.models import Effect
from tests.api.api_client import Caller, new_key
from tests.journal.committed import committed, together

__all__ = ["committed"]
WITHIN_S = 600  # open transactions of other tests hold back PostgreSQL's horizon


def report(worker: Caller, word: str) -> None:
    fields = {"session": "s", "effect_key": word, "tool": "shell", "arguments": word}
    assert worker.report([{"id": new_key(), "kind": "effect.planned", **fields}]).status_code == 200


def test_concurrent_writers_lose_no_words_and_keep_none_too_long(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from config.wsgi import application

    with transaction.atomic():
        project = projects.ensure_default_project()
        agent = agents.ensure_agent(project, "deploy-7")
        worker = Caller(tokens.issue_token(agent, expires_in=None, actor="tests"), app=application)
    monkeypatch.setattr(indexer, "_STEP_ENTRIES", {"postgresql": 3, "sqlite": 3})
    for number in range(12):
        report(worker, f"word{number}")
    read, until = 0, time.monotonic() + WITHIN_S
    while read < 12 and time.monotonic() < until:
        read += sum(
            progress.effects
            for progress in together(
                indexer.update_index, indexer.update_index, indexer.update_index
            )
        )
    assert read == 12 == EffectText.objects.count()
    assert len(_find_keys(project.id, "shell")) == 12
    if connection.vendor == "sqlite":
        return  # SQLite has one writer: the next cases cannot happen
    _a_lower_position_that_commits_later(project.id, worker)
    _an_erasure_waits_for_a_writer_of_words(project.id)


def _index_all(project: UUID) -> None:
    """Index until no entry is left."""
    until = time.monotonic() + WITHIN_S
    indexer.update_index()
    while (
        indexer.load_unindexed_words(project)[1].missing or EffectText.objects.count() < 13
    ) and time.monotonic() < until:
        time.sleep(0.05)
        indexer.update_index()


def _find_keys(project: UUID, text: str) -> list[str]:
    return list(
        Effect.objects.filter(find_words(project, parse_terms(text)).q).values_list(
            "effect_key", flat=True
        )
    )


def _a_lower_position_that_commits_later(project: UUID, worker: Caller) -> None:
    written, proceed = threading.Event(), threading.Event()
    effect = Effect.objects.get(effect_key="word3")

    def slow() -> None:
        with transaction.atomic():
            row: dict[str, Any] = {**Entry.objects.filter(effect=effect.id).values().get()}
            del row["position"], row["txid"]
            Entry.objects.create(**{**row, "event_id": new_key()})
            Effect.objects.filter(id=effect.id).update(resource="slowly")
            written.set()
            assert proceed.wait(60)
        connection.close()

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    assert written.wait(60)
    report(worker, "quick")
    indexer.update_index()
    assert _find_keys(project, "quick") == ["quick"]  # a search reads unindexed entries
    assert not EffectText.objects.filter(
        position=Effect.objects.get(effect_key="quick").opened_position
    ).exists()
    proceed.set()
    thread.join(60)
    _index_all(project)
    assert _find_keys(project, "slowly") == ["word3"]
    assert EffectText.objects.count() == 13
    assert indexer.load_unindexed_words(project)[1].missing == 0


def _an_erasure_waits_for_a_writer_of_words(project: UUID) -> None:
    """Erase in a transaction that began before the words were committed; the words go too."""
    effect = Effect.objects.get(effect_key="word5")
    plan = effect.plan_position or 0
    begun, erased = threading.Event(), threading.Event()

    def erase() -> None:
        with transaction.atomic():
            begun.set()
            erasures.erase_body(project, plan, reason="r", actor="p", now_us=1)
        erased.set()
        connection.close()

    thread = threading.Thread(target=erase, daemon=True)
    EffectText.objects.filter(position=effect.opened_position).delete()
    with transaction.atomic():
        store.lock_words()
        rows = extract.extract_words([effect.id])
        thread.start()
        assert begun.wait(60)
        while not _waits_for_a_lock():
            assert not erased.wait(0.01)
        store.store_words(rows)
    thread.join(60)
    assert erased.is_set()
    assert not EffectText.objects.filter(position=effect.opened_position).exists()
    assert _find_keys(project, "word5") == []
    _index_all(project)
    assert _find_keys(project, "word5") == []
    assert "word5" in _find_keys(project, "shell")


def _waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"
        )
        return bool(cursor.fetchone()[0])
