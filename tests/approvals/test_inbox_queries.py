"""What the inbox costs: queries that do not grow with the waiting requests, and light pages."""

import re
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.inbox import inbox_queries
from approvals.models import Gate
from db.ids import new_uuid7
from db.triggers import suspend_triggers
from ledger.models import Effect
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.plans import explained

# of a page with a card, an earlier denial and a withdrawal with its reason; a list needs fewer
MOST = 23


def measure_page(client: Client, url: str) -> tuple[int, int]:
    """Return the number of queries of a page, and its bytes."""
    client.get(url)  # the first view is recorded once
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(url)
    assert answer.status_code == 200
    return len(queries), len(answer.content)


def multiply(gate: Gate, number: int) -> None:
    """Add `number` waiting requests like `gate`, each of an effect of its own."""
    effect, row = Effect.objects.get(id=gate.effect_id), Gate.objects.get(id=gate.id)
    kinds = ("irreversible", "compensable", "reversible")
    effects, gates = [], []
    for n in range(number):
        effect.pk, effect.effect_key = UUID(int=n + 1), f"copy-{n}"
        effect.opened_position += 1
        effects.append(
            Effect(
                **{
                    column.attname: getattr(effect, column.attname)
                    for column in Effect._meta.concrete_fields
                }
            )
        )
        row.id, row.effect_id = new_uuid7(), effect.pk
        row.opened_position += 1
        row.decide_by_us -= 1
        row.reversibility = kinds[n % 3]
        row.step_up, row.reason_of_yes = ("typed_digest", 10) if n % 3 == 0 else ("none", 0)
        gates.append(
            Gate(
                **{
                    column.attname: getattr(row, column.attname)
                    for column in Gate._meta.concrete_fields
                }
            )
        )
    Effect.objects.bulk_create(effects, batch_size=200)
    with suspend_triggers(connection, ["approvals_gate"]):  # a gate needs its entry, slow for many
        Gate.objects.bulk_create(gates, batch_size=200)


@pytest.mark.usefixtures("remembered")
def test_pages_need_as_many_queries_for_many_requests_as_for_few(inbox: InboxScenario) -> None:
    arguments = {"command": "git push origin main"}
    inbox.agent.session("s-0")
    inbox.answer(inbox.gate(inbox.agent.plan("e-0", "s-0", arguments=arguments)), "carol", "deny")
    withdrawn = inbox.plan("e-1", arguments={"command": "git push origin next"})
    assert inbox.agent.post(f"/effects/{withdrawn['id']}/supersede").status_code == 200
    gate = inbox.gate(inbox.plan("e-2", arguments=arguments))
    client = inbox.organization.client("reviewer")
    urls = [reverse("inbox"), reverse("inbox") + "?state=mine", reverse("gate", args=[gate.id])]
    before = [measure_page(client, url)[0] for url in urls]
    multiply(gate, 200)
    after = [measure_page(client, url) for url in urls]
    assert [queries for queries, _ in after] == before
    assert max(before) <= MOST, before
    assert max(size for _, size in after) < 100_000
    html = client.get(reverse("inbox")).content
    assert len(re.findall(rb"denied \d+ s ago", html)) == inbox_queries.INBOX_PAGE_SIZE
    assert (
        html.count(b"resubmitted\nwith other arguments: withdrawn") == inbox_queries.INBOX_PAGE_SIZE
    )


# Tables that grow with what agents do.
GROWING = [
    *(
        "journal_entry",
        "journal_outbox",
        "ledger_effect",
        "ledger_attempt",
        "approvals_gate",
        "approvals_vote",
    ),
    *(
        "agent_sessions_session",
        "agent_sessions_task",
        "agent_sessions_item",
        "agent_sessions_artifact",
    ),
]
WALK = re.compile(r"INDEX (\w+) \(project(?:_id)?=\?\)")
NEWEST = re.compile(
    r'WHERE "\w+"\."project_id" = %s ORDER BY (?:2|"\w+"\."opened_position") DESC LIMIT'
)  # a list in order


def load_project_indexes() -> set[str]:
    """The indexes that begin with the project and include all of its rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT listed.name FROM sqlite_master AS grown, pragma_index_list(grown.name) AS listed,"
            " pragma_index_info(listed.name) AS held WHERE NOT listed.partial AND held.seqno = 0"
            " AND held.name IN ('project', 'project_id') AND grown.name IN "
            f"({', '.join(['%s'] * len(GROWING))})",
            GROWING,
        )
        return {name for (name,) in cursor.fetchall()}


def walked(plans: dict[str, str]) -> dict[str, str]:
    """The statements that read a whole project for a few rows."""
    tables = load_project_indexes()
    assert len(tables) > len(GROWING)
    return {
        sql: plan
        for sql, plan in plans.items()
        if tables & set(WALK.findall(plan)) and not NEWEST.search(sql)
    }


def test_sqlite_walks_no_project_to_answer_a_page(inbox: InboxScenario) -> None:
    """Each page reads a few rows; an index that begins with the project would read all rows of the
    project."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL goes by what it has seen of the rows")
    agent = inbox.agent
    inbox.answer(
        inbox.gate(inbox.plan("e-1", arguments={"command": "git push origin next"})),
        "carol",
        "deny",
    )
    gate = inbox.gate(inbox.plan("e-2", arguments={"command": "git push origin main"}))
    effect, session, position = str(gate.effect_id), str(gate.session_id), gate.opened_position
    Effect.objects.filter(id=effect).update(violates=True)
    fields = {"type": "log", "sha256": "ab" * 32, "size": 1, "media_type": "text/plain"}
    artifact = agent.post("/artifacts", {"session": "s-1", "effect": effect, **fields}).json()["id"]
    task = agent.post(f"/sessions/{session}/tasks", {"key": "t"}).json()["id"]
    agents = [
        "/limits",
        "/effects",
        "/sessions",
        "/gates",
        "/events/receipt?id=x",
        "/effects?external_reference=x",
        "/effects?state=planned",
    ]
    agents += [
        "/effects?outcome=error",
        "/effects?effect_key=e-1&session=s-1",
        "/effects?session=s-1",
    ]
    agents += [
        "/sessions?key=s-1",
        "/gates?session=s-1",
        f"/sessions/{session}/tasks",
        f"/tasks/{task}/items",
    ]
    agents += [
        f"/effects/{effect}",
        f"/sessions/{session}",
        f"/artifacts/{artifact}",
        f"/gates/{gate.id}",
    ]
    ids = [effect, session, artifact, task, gate.id, "ab" * 32, "s-1", "e-1", "nothing", position]
    ids += [f"{letter}_{position}" for letter in "estag"]
    pages = [reverse("effect", args=[effect]), reverse("gate", args=[gate.id])]
    pages += [
        reverse(name, args=[session]) for name in ("session", "session_tasks", "session_artifacts")
    ]
    pages += [reverse("inbox"), reverse("inbox") + "?state=decided", "/sessions/", "/search/"]
    pages += [
        reverse("task", args=[task]),
        *(f"{reverse('search_jump')}?id={identity}" for identity in ids),
    ]
    client = inbox.organization.client("reviewer")
    with explained() as plans:
        assert {client.get(page).status_code for page in pages} == {200, 302}
        assert {agent.get(path).status_code for path in agents} <= {200, 404}
    assert walked(plans) == {}
    assert len(plans) > len(pages) + len(agents)


def test_sqlite_walks_no_project_for_a_batch_that_names_its_sessions_by_ids(
    inbox: InboxScenario,
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL goes by what it has seen of the rows")
    facts = [{"id": f"f-{n}", "kind": "session.noted", "session": str(uuid4())} for n in range(200)]
    with explained() as plans:
        assert inbox.agent.report(facts).json()["accepted"] == len(facts)
    assert [sql for sql in plans if 'FROM "agent_sessions_session"' in sql]
    assert walked(plans) == {}
