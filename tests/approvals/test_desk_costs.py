"""What the desk costs: queries that do not grow with what waits, and light pages."""

from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals import inbox
from approvals.models import Gate
from journal.ids import uuid7
from ledger.models import Effect
from tests.approvals.story import Desk

MOST = 22  # of a page with a card, a no before and a withdrawal, whose words it tells; a list asks fewer


def asked(client: Client, url: str) -> tuple[int, int]:
    """How many queries a page asks, and its bytes."""
    client.get(url)  # the look is recorded once
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(url)
    assert answer.status_code == 200
    return len(queries), len(answer.content)


def multiply(gate: Gate, number: int) -> None:
    """Let `number` more requests like `gate` wait, each of an effect of its own."""
    effect, row = Effect.objects.get(id=gate.effect_id), Gate.objects.get(id=gate.id)
    kinds = ("irreversible", "compensable", "reversible")
    effects, gates = [], []
    for n in range(number):
        effect.pk, effect.effect_key = UUID(int=n + 1), f"copy-{n}"
        effect.opened_position += 1
        effects.append(Effect(**{one.attname: getattr(effect, one.attname) for one in Effect._meta.concrete_fields}))
        row.id, row.effect_id = uuid7(), effect.pk
        row.opened_position += 1
        row.decide_by_us -= 1
        row.reversibility = kinds[n % 3]
        row.step_up, row.reason_of_yes = ("typed_digest", 10) if n % 3 == 0 else ("none", 0)
        gates.append(Gate(**{one.attname: getattr(row, one.attname) for one in Gate._meta.concrete_fields}))
    Effect.objects.bulk_create(effects, batch_size=200)
    Gate.objects.bulk_create(gates, batch_size=200)


def test_pages_ask_as_many_queries_for_many_requests_as_for_few(desk: Desk) -> None:
    arguments = {"command": "git push origin main"}
    desk.agent.session("s-0")
    desk.answer(desk.gate(desk.agent.plan("e-0", "s-0", arguments=arguments)), "carol", "deny")
    withdrawn = desk.plan("e-1", arguments={"command": "git push origin next"})
    assert desk.agent.post(f"/effects/{withdrawn['id']}/supersede").status_code == 200
    gate = desk.gate(desk.plan("e-2", arguments=arguments))
    client = desk.house.client("reviewer")
    urls = [reverse("inbox"), reverse("inbox") + "?state=mine", reverse("gate", args=[gate.id])]
    before = [asked(client, url)[0] for url in urls]
    multiply(gate, 200)
    after = [asked(client, url) for url in urls]
    assert [queries for queries, _ in after] == before
    assert max(before) <= MOST, before
    assert max(size for _, size in after) < 100_000
    html = client.get(reverse("inbox")).content
    assert html.count(b"asked again: denied by carol") == inbox.SIZE
    assert html.count(b"asked anew with other arguments: withdrawn by its agent") == inbox.SIZE


def test_sqlite_walks_no_projects_journal_for_a_page(desk: Desk) -> None:
    """Each reads the few entries of its effects; an index that begins with the project would lead through them all."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL goes by what it has seen of the rows")
    desk.answer(desk.gate(desk.plan("e-1", arguments={"command": "git push origin next"})), "carol", "deny")
    gate = desk.gate(desk.plan("e-2", arguments={"command": "git push origin main"}))
    Effect.objects.filter(id=gate.effect_id).update(violates=True)
    client = desk.house.client("reviewer")
    urls = [reverse("inbox"), reverse("inbox") + "?state=decided", reverse("gate", args=[gate.id])]
    urls += [
        reverse("effect", args=[gate.effect_id]),
        reverse("session", args=[gate.session_id]),
        "/sessions/",
        "/audit/",
    ]
    with CaptureQueriesContext(connection) as queries:
        assert [client.get(url).status_code for url in urls] == [200] * len(urls)
    reading = [one["sql"] for one in queries if one["sql"].startswith("SELECT") and '"journal_entry"' in one["sql"]]
    assert len(reading) > len(urls)
    with connection.cursor() as cursor:
        plans = [(sql, cursor.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()) for sql in reading]
    assert [sql for sql, plan in plans if "sqlite_autoindex_journal_entry_1 (project=?)" in str(plan)] == []
