"""The chain of an effect, the three clocks, unfolding, and the journal around a position."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from db.clock import now_us
from investigation.models import Incident
from journal.models import Entry
from ledger.models import Effect
from pages.effects import chain
from pages.journal import data
from pages.timeline import clock_skew
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds, connect_agent, done, fill

pytestmark = pytest.mark.django_db
SECOND = 1_000_000


@pytest.fixture
def viewer(organization: Organization) -> Client:
    return organization.client("viewer")


def plan_effect(agent: Caller, key: str, session: str = "s", **fields: Any) -> dict[str, Any]:
    return agent.plan(key, session, **{"tool": "git.push", "arguments": {"ref": key}, **fields})


def carry_out(agent: Caller, effect: dict[str, Any], **answer: Any) -> None:
    agent.dispatch(effect)
    agent.acknowledge(effect, **answer)


def test_a_chain_holds_parents_children_compensations_and_similar_calls(
    organization: Organization, agent: Caller, viewer: Client
) -> None:
    for key in ("s", "t"):
        agent.session(key)
    top = plan_effect(agent, "top")
    middle = plan_effect(agent, "middle", parent_effect=top["id"])
    before = plan_effect(agent, "before", arguments={"ref": "main"})
    carry_out(agent, before, external_reference="pull/17")
    subject = plan_effect(agent, "one", arguments={"ref": "main"}, parent_effect=middle["id"])
    carry_out(agent, subject, external_reference="pull/17")
    child = plan_effect(agent, "child", parent_effect=subject["id"])
    grandchild = plan_effect(agent, "grandchild", parent_effect=child["id"])
    body = {"effect_key": "undo", "tool": "git.revert", "arguments": {"ref": "main"}}
    undo = done(agent.post(f"/effects/{subject['id']}/compensate", body))
    elsewhere = plan_effect(agent, "elsewhere", "t", tool="mail.send")
    carry_out(agent, elsewhere, external_reference="pull/17")
    plan_effect(agent, "stranger", "t", tool="mail.read")
    url = reverse("effect_chain", args=[subject["id"]])
    answer = viewer.get(url, {"view": "json"}).json()
    assert {identity: "; ".join(hows) for identity, hows in answer["links"].items()} == {
        subject["id"]: "this effect",
        middle["id"]: "its parent",
        top["id"]: "its parent, 2 levels up",
        child["id"]: "its child",
        grandchild["id"]: "its child, 2 levels down",
        undo["id"]: "compensates this effect",
        before["id"]: "the same call, before it; the same external reference, before it",
        elsewhere["id"]: "the same external reference, after it",
    }
    assert [note.partition(" up to")[0] for note in answer["cut"]] == ["Repeated calls are indexed"]
    handles = [int(effect["effect"][2:]) for effect in answer["effects"]]
    assert (len(handles), handles) == (8, sorted(handles))
    of_undo = viewer.get(reverse("effect_chain", args=[undo["id"]]), {"view": "json"}).json()
    assert of_undo["links"][subject["id"]] == ["compensated by this effect"]
    for view in ("lanes", "compact", "table"):
        page = viewer.get(url, {"view": view}).text
        assert all(reverse("effect", args=[identity]) in page for identity in answer["links"])
        assert "its child, 2 levels down" in page
        assert "mail.read" not in page
    assert url in viewer.get(reverse("effect", args=[subject["id"]])).text
    assert organization.client("neighbour").get(url).status_code == 404


# Queried by the layout of every page. SQLite reports the read of the last row as a scan.
_LAST_ENTRY = "FROM journal_entry ORDER BY position DESC LIMIT 1"


def test_chain_and_incident_are_read_by_indexes(
    organization: Organization, agent: Caller, viewer: Client, sample: SampleIds
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip(
            "PostgreSQL plans by its own statistics, and of so small a book scans are the best"
        )
    handle = str(Session.objects.get(id=sample.session))
    organization.client("reviewer").post(
        reverse("open_incident"), {"title": "x", "thing": handle, "reason": "why"}
    )
    incident = Incident.objects.get()
    urls = [
        reverse("effect_chain", args=[sample.effects["ok"]]),
        reverse("incident", args=[incident.id]),
    ]
    with CaptureQueriesContext(connection) as queries:
        assert [viewer.get(url, {"clock": "corrected"}).status_code for url in urls] == [200, 200]
    used = []
    with connection.cursor() as cursor:
        for query in queries.captured_queries:
            if query["sql"].startswith("SELECT ") and _LAST_ENTRY not in query["sql"]:
                cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
                used += [row[3] for row in cursor.fetchall()]
    assert not [step for step in used if re.match(r"SCAN (ledger_|journal_)", step)]
    assert not [
        step
        for step in used
        if re.search(r"effect_by_opening \(project_id=\?(?! AND opened_position=)", step)
    ]
    assert any("effect_asked_about" in step for step in used)


def test_a_chain_is_bounded_and_shows_where_it_is_cut(
    organization: Organization, agent: Caller, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.session("s")
    monkeypatch.setattr(chain, "MAX_STEPS_UP", 2)
    monkeypatch.setattr(chain, "MAX_SIMILAR", 1)
    effects: list[dict[str, Any]] = []
    for number in range(4):
        parent = {"parent_effect": effects[-1]["id"]} if effects else {}
        effects.append(plan_effect(agent, f"e{number}", arguments={"ref": "main"}, **parent))
        carry_out(agent, effects[-1])
    with connect_agent(organization.other_token.agent) as stranger:
        foreign = fill(stranger)
    Effect.objects.filter(id=effects[0]["id"]).update(parent_effect=foreign.effects["ok"])
    answer = viewer.get(reverse("effect_chain", args=[effects[3]["id"]]), {"view": "json"}).json()
    assert answer["cut"][:-1] == [
        "Only 2 steps up are shown; there are more.",
        "More than 1 effects with the same call in this session before it; the nearest are shown.",
    ]
    assert list(answer["links"]) == [effects[n]["id"] for n in (3, 2, 1)]
    page = viewer.get(reverse("effect_chain", args=[effects[3]["id"]])).text
    assert all(sentence in page for sentence in answer["cut"])
    first = viewer.get(reverse("effect_chain", args=[effects[0]["id"]]), {"view": "json"})
    assert str(foreign.effects["ok"]) not in first.text
    Effect.objects.filter(id=effects[0]["id"]).update(parent_effect=effects[1]["id"])  # a cycle
    assert viewer.get(reverse("effect_chain", args=[effects[0]["id"]])).status_code == 200


def test_a_chain_shows_who_approved(
    organization: Organization, agent: Caller, viewer: Client
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    inbox.declare("git.push")
    effect = inbox.plan(arguments={"ref": "main"})
    inbox.answer(inbox.gate(effect), "rita", reason="agreed <b>in</b> INC-204")
    decision = {"key": "d", "choice": "push now", "effect_key": "e-1"}
    agent.post(f"/sessions/{effect['session']}/decisions", decision)
    url = reverse("effect_chain", args=[effect["id"]])
    answer = viewer.get(url, {"view": "json"}).json()
    assert [row["choice"] for row in answer["decisions"]] == ["push now"]
    (gate,) = answer["gates"]
    assert (gate["gate"], gate["status"]) == (str(inbox.gate(effect)), "approved")
    assert [(vote["who"], vote["answer"]) for vote in gate["votes"]] == [("rita", "approve")]
    page = viewer.get(url).text
    assert "agreed &lt;b&gt;in&lt;/b&gt; INC-204" in page


def report(agent: Caller, session: str, key: str, *, behind_us: int, **fields: Any) -> None:
    fact = {
        "id": new_key(),
        "kind": "effect.planned",
        "session": session,
        "effect_key": key,
        "tool": "git.push",
    }
    timing = {"occurred_us": now_us() - behind_us, "arguments": {"ref": "main"}}
    answer = agent.report([fact | timing | fields])
    assert answer.status_code == 200, answer.text


def test_the_corrected_clock_is_the_agents_clock_shifted_by_the_median(
    agent: Caller, viewer: Client
) -> None:
    session = agent.session("s", mode="leased")["id"]
    for number, behind_s in enumerate((30, 30, 31, 30, 55)):
        report(agent, "s", f"e{number}", behind_us=behind_s * SECOND)
    url = reverse("session_timeline", args=[session])
    answer = viewer.get(url, {"view": "json"}).json()
    (correction,) = answer["corrections"]
    assert 30 * SECOND <= correction["shift_us"] < 40 * SECOND
    assert correction["facts"] == 5
    for effect in answer["effects"]:
        fact = effect["facts"][0]
        entry = Entry.objects.get(position=fact["position"])
        assert (fact["server_us"], fact["agent_us"]) == (entry.received_us, entry.occurred_us)
        assert fact["corrected_us"] == fact["agent_us"] + correction["shift_us"]
    by_corrected = viewer.get(url, {"view": "json", "clock": "corrected"}).json()
    assert all(
        fact["at_us"] == fact["corrected_us"]
        for row in by_corrected["effects"]
        for fact in row["facts"]
    )
    page = viewer.get(url, {"view": "compact", "clock": "corrected"}).text
    assert re.search(r"corrected by\s+plus 3\d\.\d s\s+\(median of\s+5\s+samples", page)
    table = viewer.get(url, {"clocks": "three"}).text
    assert table.count("data-label=Corrected") == 5
    assert "data-label=Corrected" not in viewer.get(url).text
    assert clock_skew.estimate_skew([1, 2, 3, 10**9, 10**10], False).why.startswith(
        "the differences vary"
    )
    assert clock_skew.estimate_skew([5, 5, 5], True).shift_us == 0
    assert clock_skew.estimate_skew([5, 5], False).why.startswith("too few")
    assert clock_skew.estimate_skew([4, 5, 5, 9], False) == clock_skew.Skew(5, 4)


def test_repeats_of_the_same_call_are_one_row_that_unfolds(agent: Caller, viewer: Client) -> None:
    agent.session("s")
    for number in range(12):
        carry_out(agent, plan_effect(agent, f"same{number}", arguments={"ref": "main"}))
    carry_out(agent, plan_effect(agent, "another", arguments={"ref": "next"}))
    session = Session.objects.get(key="s")
    url = reverse("session_timeline", args=[session.id])

    def rows(**query: str) -> list[str]:
        page = viewer.get(url, {"view": "compact", **query}).text
        return re.findall(
            r'<tr role="row"(?: class="is-marked")?>\s*<th role="rowheader".*?</tr>',
            page,
            re.DOTALL,
        )

    (folded,) = rows()
    assert "×13" in folded
    assert "13 calls, 2 different" in " ".join(folded.split())
    another, same = rows(fold="same")
    assert "the same call 12 times" in " ".join(same.split())
    assert "×" not in another
    assert len(rows(fold="none")) == 13
    first = str(Effect.objects.get(effect_key="same0"))
    link = re.search(r'href="(\?[^"#]*unfold=[^"#]*)', same)
    assert link
    assert link[1].replace("&amp;", "&").endswith(f"unfold={first}")
    assert len(rows(fold="same", unfold=first)) == 13


def test_the_journal_shows_entries_around_a_position_of_this_project_only(
    organization: Organization,
    agent: Caller,
    sample: SampleIds,
    viewer: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PostgreSQL never reuses positions: entries of earlier tests lie between entries of this test.
    monkeypatch.setattr(data, "MAX_DISTANCE", 10**12)
    with connect_agent(organization.other_token.agent) as stranger:
        foreign_book = fill(stranger)
    agent.plan("last", str(sample.session), tool="git.push", arguments={"ref": "<b>x</b>"})
    own = list(
        Entry.objects.filter(project=organization.project.id)
        .order_by("position")
        .values_list("position", flat=True)
    )
    at = own[15]

    def around(position: object) -> dict[str, Any]:
        answer: dict[str, Any] = viewer.get(
            reverse("journal"), {"at": str(position), "view": "json"}
        ).json()
        return answer

    answer = around(at)
    assert [entry["position"] for entry in answer["entries"]] == own[5:26][::-1]
    assert (answer["earlier"], answer["later"]) == (own[5], own[25])
    foreign = Entry.objects.filter(project=organization.other.id).order_by("position")[3].position
    missing = around(f"#{foreign}")
    assert missing["is_there"] is False
    assert not {entry["position"] for entry in missing["entries"]} - set(own)
    newest = around("")
    assert newest["entries"][0]["position"] == own[-1]
    assert (around(own[0])["earlier"], newest["later"]) == (None, None)
    page = viewer.get(reverse("journal"), {"at": str(at)}).text
    assert f'id="p{at}" class="is-marked"' in " ".join(page.split())
    assert str(foreign_book.session) not in page
    assert "Enter a number such as" in viewer.get(reverse("journal"), {"at": "<b>x"}).text
    effect = Effect.objects.get(id=sample.effects["ok"])
    assert (
        f"{reverse('journal')}?at={effect.plan_position}#p"
        in viewer.get(reverse("effect", args=[effect.id])).text
    )
    kinds = organization.client("administrator").get(reverse("journal"), {"at": str(own[0])}).text
    assert "admin." in kinds
    hidden = viewer.get(reverse("journal"), {"at": str(own[0])}).text
    assert '"role"' not in hidden.replace("&quot;", '"')
    assert '"role"' in kinds.replace("&quot;", '"')
    monkeypatch.setattr(
        data, "MAX_DISTANCE", 20
    )  # another project has written more entries than the page searches
    with connect_agent(organization.other_token.agent) as stranger:
        fill(stranger, key="later")
    recent = {entry["position"] for entry in around("")["entries"]}
    assert recent
    assert recent <= set(own)
