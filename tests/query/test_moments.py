"""Pages, groups, exports and lanes as of a moment stay the same, whatever happens later.

Each moment after the scenario of incident.py is stored as shown live and then rebuilt.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import time_machine
from django.db import transaction
from django.test import Client
from django.urls import reverse

from approvals import exemptions
from db.clock import now_us
from investigation.exports import export_writer
from investigation.exports.export_writer import ExportPlan
from investigation.history.moment import JournalCut
from investigation.query import execute, result_columns, stream
from investigation.query.parser.ast import QueryError
from investigation.query.permalink import pin_query
from journal import running_writers
from ledger.models import Effect
from proofs import stable_position
from sessions.models import Session
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import keep_core
from tests.pages.people import Organization
from tests.query.incident import Scenario, report
from tests.recovery.lease_helpers import hold

pytestmark = pytest.mark.django_db
APART: Final = 6  # moments between those at which a query is compared
ROWS: Final = (
    "effect",
    "session",
    "gate",
    "exemption",
    "event",
    "effect is:unknown OR attempts:>1",
    "session is:ended",
)
GROUPED: Final = (
    "effect | group state | count",
    "effect | group tool,state | count, distinct(agent), max(attempts), avg(attempts)",
    "effect attempts:>0 | group permission | p50(took), sum(attempts), count",
    "effect | group session | p95(attempts), min(at), distinct(state)",
    "effect | group reviewer | count, max(attempts)",
    "effect | group ruling | count, max(wait)",
    "effect | group repository,ref | count | top 3",
    "session | group status | count, max(effects), sum(effects), distinct(repository)",
    "session | group agent | avg(took), p50(effects), count",
    "gate | group status | count, max(wait), distinct(tool)",
    "gate ruled_in:<2s | group approver | count, p50(ruled_in)",
    "gate | group reviewer,status | count, avg(ruled_in)",
    "exemption | group granter | sum(uses), max(last_use), count",
    "event | group kind | count",
)

OF_OTHERS: Final = (
    "session any(effect: state:dispatched)",
    "session all(effect: outcome:ok)",
    "session count(gate: status:pending) >= 1",
    "effect any(session: status:[waiting,failed])",
    "effect none(gate: status:used) has:dispatched_at",
    "effect (ruling:approved OR state:failed)",
    "effect wait:>0ms -outcome:ok",
    "effect approved_intent:v1* -permission:pending",
    "session failing_tool:file.read OR is:ended",
    "session is:unknown",
    "session is:violating",
    "gate any(effect: permission:granted any(session: status:waiting))",
)


def steps(scenario: Scenario) -> Iterator[Callable[[], Any]]:
    """Yield actions that follow the scenario: votes, heartbeats, attempts, plans and ends."""
    inbox, agent = scenario.inbox, scenario.inbox.agent
    lease = hold(agent, "leased")
    heartbeat = {"lease": lease["id"], "epoch": lease["epoch"]}
    user = inbox.user("administrator")

    def another_plan() -> None:
        plan = {
            "kind": "effect.planned",
            "effect_key": "apart",
            "tool": "note.write",
            "arguments": {"other": "words"},
        }
        report(inbox, {**plan, "id": "0-first", "target": {"repository": "shop", "ref": "next"}})

    def covered() -> None:
        agent.dispatch(agent.plan("covered", tool="git.push", arguments={"ref": "z"}))

    def revoked() -> None:
        assert scenario.exemption is not None
        with transaction.atomic():
            assert exemptions.end_exemption(scenario.exemption, user)

    yield lambda: agent.dispatch(scenario.effects["child"])
    yield lambda: agent.client.post(
        "/heartbeats", json={"heartbeats": [heartbeat]}
    ).raise_for_status()
    yield lambda: agent.acknowledge(
        scenario.effects["child"], outcome="error", result={"said": "a word of later"}
    )
    yield lambda: inbox.answer(inbox.gate(scenario.effects["waiting"]), "administrator")
    yield lambda: report(
        inbox, {"kind": "effect.failed", "effect_key": "ran", "attempt": 1, "reason": "timeout"}
    )
    yield lambda: report(
        inbox,
        {"kind": "effect.dispatched", "effect_key": "retried", "attempt": 3, "session": "broken"},
    )
    yield another_plan
    yield covered
    yield revoked
    yield lambda: report(
        inbox, {"kind": "session.changed", "title": "Another title", "status": "waiting"}
    )
    yield lambda: agent.post(
        "/sessions/" + str(Session.objects.get(key="leased").id) + "/end", {"status": "failed"}
    ).raise_for_status()
    yield (
        lambda: (
            agent.plan("new", session="leased-2", tool="file.read")
            if agent.session("leased-2")
            else None
        )
    )


@pytest.fixture
def story(scenario: Scenario) -> Scenario:
    scenario.inbox.agent.session("leased", mode="leased", title="Of another worker")
    Session.objects.filter(key="broken").update(resumes=0)  # the journal has no record of resumes
    return scenario


def shown(client: Client, url: str, **query: str) -> str:
    """Return the text of a page without elapsed times and the present seal of its entries."""
    answer = client.get(url, query)
    assert answer.status_code == 200, answer.content[:3000]
    text: str = answer.content.decode()
    if answer["Content-Type"].startswith("application/json"):
        return text
    main = text.partition("<main")[2].partition("</main>")[0]
    return re.sub(r'</b> in \d+ ms|<p class="seal quiet">.*?</p>', "</b>", main, flags=re.S)


def first_difference(before: str, after: str) -> tuple[str, str]:
    """Return the text from which two pages differ."""
    at = next(
        (n for n, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0
    )
    return before[max(at - 80, 0) : at + 120], after[max(at - 80, 0) : at + 120]


def link_targets(scenario: Scenario, now: int) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the pages behind links of this moment, by what each page shows."""
    asof = JournalCut(running_writers.load_last_position(), now).text
    pages = {}
    for text in (*ROWS, *GROUPED[1:5], GROUPED[8], "effect later", "effect nothing"):
        pages[text] = (reverse("search"), {"q": pin_query(text, now), "facets": "1"})
    for session in Session.objects.filter(key__in=["s-1", "leased"]):
        pages[f"session {session.key}"] = (reverse("session", args=[session.id]), {"asof": asof})
        for view in ("lanes", "compact", "json"):
            query = {"asof": asof, "view": view}
            pages[f"{view} {session.key}"] = (reverse("session_timeline", args=[session.id]), query)
    query = {"asof": asof, "view": "json", "state": "dispatched"}
    pages["filtered"] = (
        reverse("session_timeline", args=[Session.objects.get(key="s-1").id]),
        query,
    )
    for name in ("child", "apart", "waiting", "ran", "pushed"):
        effect = scenario.inbox.effect(scenario.effects[name])
        pages[f"effect {name}"] = (reverse("effect", args=[effect.id]), {"asof": asof})
    gate = scenario.inbox.gate(scenario.effects["waiting"])
    pages["gate"] = (reverse("gate_history", args=[gate.id]), {"asof": asof})
    return pages


def check_unrecorded_fields_are_refused(story: Scenario) -> None:
    now, project = now_us(), story.inbox.project
    for text in (
        "session seen_at:1h",
        "session -(status:running has:seen_at)",
        "effect any(session: seen_at:>@at)",
        "session | group agent | max(seen_at)",
    ):
        execute.compile_query(text, project, now)
        with pytest.raises(QueryError, match="The journal does not record heartbeats") as refused:
            pin_query(text, now)
        assert text[refused.value.at :].startswith("seen_at")
    answer = story.inbox.organization.client("viewer").get(
        reverse("search_link"), {"q": "session seen_at:1h"}
    )
    assert answer.status_code == 422
    assert "Remove seen_at" in answer.content.decode()


@pytest.mark.parametrize("one_in", keep_core([2, 1], [2]))
def test_a_copied_link_shows_the_same_bytes_whatever_happens_later(
    story: Scenario, one_in: int
) -> None:
    check_unrecorded_fields_are_refused(story)
    viewer = story.inbox.organization.client("viewer")
    pages = dict(list(link_targets(story, now_us()).items())[one_in - 1 :: one_in])
    before = {name: shown(viewer, url, **query) for name, (url, query) in pages.items()}
    assert re.search(r'scope="col">\s*Last entry\s*</th>', before["session"])
    for number, step in enumerate(steps(story)):
        with time_machine.travel(now_us() / 1e6 + 3 * number):
            step()
    with time_machine.travel(now_us() / 1e6 + 7_200):  # after deadlines and expiries of gates
        viewer = story.inbox.organization.client("viewer")
        after = {name: shown(viewer, url, **query) for name, (url, query) in pages.items()}
    assert {
        name: first_difference(before[name], after[name])
        for name in pages
        if after[name] != before[name]
    } == {}


def groups(scenario: Scenario, text: str, **options: Any) -> list[Any]:
    """Return a grouped answer in a fixed order with rounded figures."""
    compiled = execute.compile_query(text, scenario.inbox.project, now_us(), **options)
    answer = execute.load_results(compiled, result_columns.prepare_rows(compiled.entity.name))
    table = answer.groups
    assert table is not None
    assert not [note for note in answer.notes if "current values" in note and "changed" in note], (
        text
    )
    figures = [
        (row[0], [None if figure is None else round(float(figure), 3) for figure in row[1]])
        for row in table.rows
    ]
    return sorted(figures, key=str)


def rows(scenario: Scenario, text: str, cut: JournalCut | None = None) -> list[str]:
    """Return the handles that a query finds, live or as of a cut."""
    entity, _, rest = text.partition(" ")
    if cut is not None:
        entity, rest = entity.removeprefix("("), f"({rest}"
    compiled = execute.compile_query(f"{entity} {rest}", scenario.inbox.project, now_us())
    assert not compiled.notes, text
    return sorted(str(row) for row in execute.matching_rows(compiled))


@pytest.mark.matrix
def test_groups_and_lanes_as_of_each_moment_are_what_was_shown_live(story: Scenario) -> None:
    queries = [
        text for text in GROUPED if "top" not in text
    ]  # the order of equal groups is not fixed
    viewer, moments = story.inbox.organization.client("viewer"), []
    session = Session.objects.get(key="s-1")
    timeline = reverse("session_timeline", args=[session.id])

    def lanes(**query: str) -> Any:
        answer = viewer.get(timeline, {"view": "json", "size": "500", **query}).json()
        answer.pop("as_of", None)
        return answer

    for number, step in enumerate(steps(story)):
        cut = JournalCut(running_writers.load_last_position(), now_us())
        live = {text: groups(story, text) for text in queries[number % APART :: APART]}
        live |= {text: rows(story, text) for text in OF_OTHERS[number % APART :: APART]}
        moments.append((cut, live, lanes()))
        step()
    now = {text: groups(story, text) for text in queries} | {
        text: rows(story, text) for text in OF_OTHERS
    }
    differ = {text for _, live, _ in moments for text in live if live[text] != now[text]}
    assert len(differ) > len(now) - 5
    for cut, live, drawn in moments:
        again = {
            text: groups(story, text.replace(" |", f" asof:{cut.text} |", 1))
            for text in live
            if "|" in text
        }
        again |= {
            text: rows(story, f"({text}) asof:{cut.text}", cut) for text in live if "|" not in text
        }
        assert [text for text in live if again[text] != live[text]] == []
        assert lanes(asof=cut.text) == drawn


@pytest.mark.matrix
def test_an_export_is_of_one_moment_even_if_rows_change_between_pieces(
    story: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHUNK_ROWS", 2)
    monkeypatch.setattr(stream, "REBUILT_AT_ONCE", 2)
    project, at, position = story.inbox.project, now_us(), running_writers.load_last_position()
    texts = (*ROWS, GROUPED[1], f"effect asof:#{position - 9}", *OF_OTHERS[1::3])
    wanted = [ExportPlan(project, text, "ndjson", position, at, "viewer (p_1)") for text in texts]
    quiet = [b"".join(export_writer.export_pieces(plan)) for plan in wanted]
    under_way = [(export_writer.export_pieces(plan), list[bytes]()) for plan in wanted]
    stable = [position]
    monkeypatch.setattr(stable_position, "load_stable_position", lambda: stable[-1])
    for number, step in enumerate(steps(story)):
        # A slow transaction may delay it.
        stable += [running_writers.load_last_position()] if number == 6 else []
        for pieces, read in under_way:
            read += [piece for piece in [next(pieces, b"")] if piece]
        step()
    files = [b"".join([*read, *pieces]) for pieces, read in under_way]
    assert [
        plan.text for plan, file, before in zip(wanted, files, quiet, strict=True) if file != before
    ] == []
    assert all(quiet[: len(ROWS) + 1])
    assert Effect.objects.filter(opened_position__gt=position).exists()
    # The same for exports requested at that moment and written now.
    late = [
        b"".join(
            export_writer.export_pieces(
                ExportPlan(project, plan.text, "csv", position, at, plan.who)
            )
        )
        for plan in wanted
    ]
    assert [len(file.splitlines()) - 1 for file in late] == [
        len(file.splitlines()) for file in quiet
    ]


def test_vote_figures_cover_only_the_selected_votes(
    organization: Organization, agent: Caller
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    inbox.declare("deploy", "reversible")
    agent.session("s-1")
    effects = [agent.plan(f"e-{n}", tool="deploy", arguments={"n": n}) for n in range(3)]
    for effect, (late, soon) in zip(effects[:2], (("ann", "bob"), ("bob", "ann")), strict=True):
        gate = inbox.gate(effect)
        for name, seconds in ((late, 60), (soon, 0)):
            shown = inbox.shown(gate)
            shown = shown._replace(at_us=shown.at_us - seconds * 1_000_000)
            assert inbox.answer(gate, name, shown=shown).refusal is None
    assert inbox.answer(inbox.gate(effects[2]), "carl", "deny").refusal is None

    def load_figures(asof: str = "") -> list[list[Any]]:
        texts = (
            "gate ruled_in:<10s{} | group approver | count, p95(ruled_in), max(ruled_in)",
            "gate{} | group tool | count, distinct(reviewer)",
            "gate{} | group tool | count, distinct(approver)",
        )
        compiled = [
            execute.compile_query(text.format(asof), inbox.project, now_us()) for text in texts
        ]
        answers = [
            execute.load_results(query, result_columns.prepare_rows("gate")) for query in compiled
        ]
        tables = [answer.groups for answer in answers]
        assert [answer.notes for answer in answers] == [[], [], []]
        return [
            [(*key, *figures) for key, figures in table.rows]
            for table in tables
            if table is not None
        ]

    position = running_writers.load_last_position()
    before = load_figures()
    quick, *different = before
    assert [(name, number) for name, number, *_ in quick] == [("ann", 1), ("bob", 1)]
    assert all(high < 10_000_000 for *_, near, high in quick for high in (near, high))
    assert different == [[("deploy", 3, 3)], [("deploy", 3, 2)]]
    agent.dispatch(effects[0])
    assert load_figures(f" asof:#{position}") == before
