"""Repeated calls and loops: queried on the pages, also later and for reported sessions."""

import re
from collections.abc import Iterable
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from db.clock import now_us
from investigation.fulltext import indexer
from investigation.models import FirstOccurrence, RepeatedOccurrence
from investigation.query import execute, grouping, result_columns
from investigation.query.column_types import Reader
from investigation.query.entity_registry import ENTITIES
from investigation.query.permalink import pin_query
from investigation.query.registry import duplicates
from investigation.saved_queries import builtin_questions
from journal import running_writers
from ledger.models import Effect
from monitoring.models import StuckEpisode
from pages.effects import chain as chains
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db
PULL = "https://forge.example/web/pull/17"
HELLO = {"body": "Looks good to me"}


@pytest.fixture
def inbox(
    organization: Organization, agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> InboxScenario:
    return InboxScenario(organization, agent)


def complete_effect(
    agent: Caller, key: str, session: str, tool: str = "forge.comment", **fields: Any
) -> str:
    """Plan and complete an effect; return its id."""
    effect = agent.plan(key, session, tool=tool, **{"arguments": HELLO, **fields})
    agent.dispatch(effect)
    agent.acknowledge(effect, result={"n": key})
    return str(effect["id"])


def report_session(agent: Caller, session: str, calls: int) -> None:
    """Report a session like an importer: repeated calls after the event, and the end."""
    facts: list[dict[str, Any]] = [{"kind": "session.started", "mode": "reported"}]
    for n in range(calls):
        effect_fields = {"effect_key": f"call:{n}"}
        command = "make test" if n % 2 == 0 else f"edit line {n}"
        facts.append(
            {
                "kind": "effect.planned",
                "tool": "bash",
                "arguments": {"command": command},
                **effect_fields,
            }
        )
        facts.append({"kind": "effect.dispatched", "attempt": 1, **effect_fields})
        facts.append(
            {"kind": "effect.acknowledged", "attempt": 1, "outcome": "error", **effect_fields}
        )
    facts.append({"kind": "session.ended", "status": "failed"})
    answer = agent.report([{"id": new_key(), "session": session, **fact} for fact in facts])
    assert answer.status_code == 200, answer.text


def facts(rows: Iterable[Any]) -> list[dict[str, Any]]:
    plain = [{name: value for name, value in row.items() if name != "id"} for row in rows]
    return sorted(plain, key=lambda row: (row["position"], row["sort"]))


def groups(inbox: InboxScenario, text: str) -> list[tuple[Any, ...]]:
    compiled = execute.compile_query(text, inbox.project, now_us())
    answer = execute.load_results(compiled, result_columns.prepare_rows(compiled.entity.name))
    assert answer.groups is not None
    return [tuple(row) for row in result_columns.groups_to_json(answer.groups)]


def sort_by_handle(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort groups with equal counts by tool, resource and handle number."""
    return sorted(rows, key=lambda row: (*row[:2], int(row[2].removeprefix("e_"))))


def rows(inbox: InboxScenario, text: str) -> list[Any]:
    compiled = execute.compile_query(text, inbox.project, now_us())
    answer, reader = (
        execute.load_results(compiled, result_columns.prepare_rows(compiled.entity.name)),
        Reader(inbox.project, now_us()),
    )
    return [
        result_columns.row_to_json(compiled.entity.name, row, reader)["key"] for row in answer.rows
    ]


def test_handles_and_numbers_of_groups_are_ordered_by_their_number() -> None:
    like = ENTITIES["effect"].fields["like"]
    assert sorted([101, 9, None, 92], key=grouping.key_rank) == [None, 9, 92, 101]
    assert sorted(["mail", None, "bash"], key=grouping.key_rank) == [None, "bash", "mail"]
    assert grouping.format_key([like, like], (92, None)) == ("e_92", None)


def question_page(viewer: Client, number: int, **given: str) -> str:
    """Return the page that the form of a question leads to."""
    answer = viewer.get(reverse("question", args=[number]), given, follow=True)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_repeated_calls_are_found_within_and_across_sessions_with_their_chains(
    inbox: InboxScenario,
) -> None:
    agent, viewer = inbox.agent, inbox.organization.client("viewer")
    inbox.declare("file.read", "read", "read_only")
    for key in ("one", "two", "three"):
        agent.session(key)
    target: dict[str, Any] = {"target": {"repository": "web", "resource": PULL}}
    first = complete_effect(agent, "a", "one", **target)
    second = complete_effect(agent, "b", "two", arguments={"body": "Hm", "key": 2}, **target)
    mail = [
        complete_effect(agent, key, "three", "mail.send", arguments={"to": "ann"})
        for key in ("m", "n")
    ]
    twins = [
        complete_effect(agent, "x", session, "bash", arguments={"command": "gh pr comment 17"})
        for session in ("one", "two")
    ]
    for session in (
        "one",
        "two",
    ):  # reads, different calls and refused calls are not repeats
        complete_effect(agent, "read", session, "file.read", arguments={"path": "README"})
        complete_effect(agent, f"{session}-alone", session, "bash", arguments={"command": session})
    agent.plan("never", "three", tool="bash", arguments={"command": "two"})
    unread = execute.compile_query(
        builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[18], {}),
        inbox.project,
        now_us(),
    )
    (note,) = unread.notes
    assert note.startswith("Repeated calls are indexed up to entry 0 of ")
    assert execute.compile_query(
        "session | group key | max(repeats)", inbox.project, now_us()
    ).notes == (note,)
    indexer.update_index()
    assert execute.compile_query(unread.text, inbox.project, now_us()).notes == ()
    stored = list(RepeatedOccurrence.objects.order_by("id").values())
    indexer.reset_index()
    indexer.update_index()
    assert (
        list(RepeatedOccurrence.objects.order_by("id").values()) == stored
    )  # indexing again changes nothing
    for made in (RepeatedOccurrence, FirstOccurrence):
        made.objects.all().delete()
    with pytest.MonkeyPatch.context() as patched:  # the step size of the index does not matter
        patched.setattr(indexer, "_STEP_ENTRIES", dict.fromkeys(indexer._STEP_ENTRIES, 2))
        indexer.reset_index()
        indexer.update_index()
    assert facts(RepeatedOccurrence.objects.values()) == facts(stored)
    question = builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[18], {})
    firsts = [
        f"e_{Effect.objects.get(id=effect_id).opened_position}" for effect_id in (twins[0], mail[0])
    ]
    expected = [("bash", "", firsts[0], 2, 2), ("mail.send", "", firsts[1], 2, 1)]
    assert groups(inbox, question) == expected
    assert (
        groups(
            inbox,
            builtin_questions.fill_question(
                builtin_questions.QUESTIONS_BY_NUMBER[18], {"words": 'gh" 17'}
            ),
        )
        == expected[:1]
    )
    aimed = builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[21], {})
    assert groups(inbox, aimed) == [("forge.comment", PULL, 2, 2, 2)]
    assert rows(inbox, "duplicate:target") == ["b", "a"]
    assert sorted(rows(inbox, "duplicate:call state:acknowledged")) == ["m", "n", "x", "x"]
    assert sorted(rows(inbox, "has:duplicate -duplicate:call")) == ["a", "b"]
    # In the browser: the question, a group, its effects, and from each chain the other effect.
    page = question_page(viewer, 21, tool="forge.comment")
    (link,) = re.findall(r'data-label="Tool">\s*<a href="([^"]+)"', page)
    listing = viewer.get(unescape(link)).content.decode()
    for pair, description in (
        ((first, second), "the same tool on the same resource"),
        (twins, "in another session"),
        (mail, ""),
    ):
        for own, other in (pair, pair[::-1]):
            assert pair is not (first, second) or reverse("effect", args=[own]) in listing
            chain = viewer.get(reverse("effect_chain", args=[own]), {"view": "json"}).json()
            assert any(description in reason for reason in chain["links"][other]), (
                pair,
                chain["links"],
            )
    # A pinned link shows the same after more calls, also with a query per position.
    link = pin_query(question, now_us())
    complete_effect(agent, "c", "three", **target)
    complete_effect(agent, "o", "one", "bash", arguments={"command": "one"})
    indexer.update_index()
    assert groups(inbox, link) == expected
    alone, comment = (
        f"e_{Effect.objects.get(effect_key=key).opened_position}" for key in ("one-alone", "a")
    )
    more = [("bash", "", alone, 2, 1), ("forge.comment", PULL, comment, 2, 2)]
    assert groups(inbox, question) == sort_by_handle([*expected, *more])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(duplicates, "MAX_LISTED_POSITIONS", 1)
        assert groups(inbox, link) == expected
        assert groups(inbox, "effect -duplicate:call has:duplicate | group tool") == [
            ("forge.comment", 1)
        ]
        assert rows(inbox, "has:duplicate -duplicate:call") == ["b"]
    # Neighbours do not count.
    assert not RepeatedOccurrence.objects.exclude(project=inbox.project).exists()
    assert set(FirstOccurrence.objects.values_list("project", flat=True)) == {inbox.project.id}


def test_each_repeated_call_is_a_row_and_equal_targets_are_another_question(
    inbox: InboxScenario,
) -> None:
    agent, viewer = inbox.agent, inbox.organization.client("viewer")
    agent.session("one")
    target: dict[str, Any] = {"target": {"repository": "web", "resource": PULL}}
    words = ("first", "second", "first", "third", "second", "first")
    keys = [f"{word}-{n}" for n, word in enumerate(words)]
    for key, word in zip(keys, words, strict=True):
        complete_effect(agent, key, "one", arguments={"body": word}, **target)
    for n, to in enumerate(["ann", "bob"] * 2):
        complete_effect(agent, f"mail-{n}", "one", "mail.send", arguments={"to": to})
    indexer.update_index()
    question = builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[18], {})
    first, second, ann, bob = (
        f"e_{Effect.objects.get(effect_key=key).opened_position}"
        for key in ("first-0", "second-1", "mail-0", "mail-1")
    )
    calls = [("forge.comment", PULL, first, 3, 1), ("forge.comment", PULL, second, 2, 1)]
    mail = [("mail.send", "", ann, 2, 1), ("mail.send", "", bob, 2, 1)]
    assert groups(inbox, question) == [calls[0], *sort_by_handle([calls[1], *mail])]
    assert groups(
        inbox, builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[21], {})
    ) == [("forge.comment", PULL, 6, 3, 1)]
    page = question_page(viewer, 18, tool="forge.comment")
    link, other = re.findall(r'data-label="Tool">\s*<a href="([^"]+)"', page)
    for item, word in ((link, "first"), (other, "second")):
        query = parse_qs(urlsplit(unescape(item)).query)["q"][0]
        assert rows(inbox, query) == [key for key in reversed(keys) if key.startswith(word)]
    assert rows(inbox, "has:like tool:mail.send") == ["mail-3", "mail-2", "mail-1", "mail-0"]
    assert rows(inbox, "-has:like") == ["third-3"]
    # Later changes do not show: one call is compensated, another is made once more.
    then = pin_query(question, now_us())
    effect_fields: dict[str, Any] = {"session": "one", "effect_key": "undo"}
    undo: list[dict[str, Any]] = [
        {
            "kind": "effect.planned",
            "tool": "mail.recall",
            "arguments": {"of": "ann"},
            "compensates": "mail-0",
        },
        {"kind": "effect.acknowledged", "attempt": 1, "outcome": "ok"},
    ]
    assert (
        agent.report([{"id": new_key(), **item, **effect_fields} for item in undo]).status_code
        == 200
    )
    assert Effect.objects.get(effect_key="mail-0").state == "compensated"
    complete_effect(agent, "mail-4", "one", "mail.send", arguments={"to": "bob"})
    indexer.update_index()
    assert groups(inbox, then) == [calls[0], *sort_by_handle([calls[1], *mail])]
    assert ("mail.send", "", ann, 1, 1) in groups(inbox, question)
    assert ("mail.send", "", bob, 3, 1) in groups(inbox, question)


def test_read_only_calls_are_not_repeats(inbox: InboxScenario) -> None:
    agent = inbox.agent
    inbox.declare("file.read", "read", "read_only")
    for session in ("reads", "acts"):
        agent.session(session)
    for n in range(6):
        complete_effect(agent, f"read-{n}", "reads", "file.read", arguments={"path": "README"})
    for n in range(2):
        complete_effect(agent, f"act-{n}", "acts", "bash", arguments={"command": "make"})
    indexer.update_index()
    assert rows(inbox, "session repeats:>=2") == rows(inbox, "session has:repeats") == ["acts"]
    name = Session.objects.get(key="acts").agent.name
    assert groups(
        inbox,
        builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[19], {"times": "2"}),
    ) == [("acts", "", name, 2)]
    assert groups(inbox, "session | group key | max(repeats)") == [("acts", 2), ("reads", None)]
    viewer = inbox.organization.client("viewer")
    page = viewer.get(
        reverse("session", args=[Session.objects.get(key="reads").id])
    ).content.decode()
    assert "the same call" not in page
    assert (
        len(rows(inbox, f"like:e_{Effect.objects.get(effect_key='read-0').opened_position}")) == 6
    )  # found if the query names it


def test_a_call_refused_before_it_ran_is_not_a_repeat(inbox: InboxScenario) -> None:
    agent = inbox.agent
    agent.session("s-1")
    effect_fields: dict[str, Any] = {"session": "s-1", "effect_key": "refused"}
    refused: list[dict[str, Any]] = [
        {
            "id": new_key(),
            "kind": "effect.planned",
            "tool": "bash",
            "arguments": {"command": "make"},
            **effect_fields,
        },
        {
            "id": new_key(),
            "kind": "effect.failed",
            "attempt": 1,
            "reason": "rejected",
            **effect_fields,
        },
    ]
    assert agent.report(refused).status_code == 200
    complete_effect(agent, "ran", "s-1", "bash", arguments={"command": "make"})
    indexer.update_index()
    assert rows(inbox, "has:duplicate") == []
    late = {
        "id": new_key(),
        "kind": "effect.acknowledged",
        "attempt": 1,
        "outcome": "ok",
        **effect_fields,
    }
    assert agent.report([late]).status_code == 200  # it ran after all
    indexer.update_index()
    assert rows(inbox, "duplicate:call") == ["ran", "refused"]


def test_nearly_identical_calls_are_the_same_and_different_calls_are_not(
    inbox: InboxScenario,
) -> None:
    agent, viewer = inbox.agent, inbox.organization.client("viewer")
    for key in ("one", "two"):
        agent.session(key)
    body, command = {"pull": 17, "body": "Looks good"}, "gh pr comment 17 --body good"
    nearly: list[tuple[str, Any]] = [
        ("forge.comment", {**body, "body": " Looks  good\n", "request_id": "a"}),
        ("forge.comment", {**body, "lines": [" a", {"b": ""}]}),
        ("bash", {"command": command, "description": "Tell them"}),
        ("mail.send", {"to": "ann", "Idempotency-Key": "k1", "why": "late"}),
    ]
    again: list[tuple[str, Any]] = [
        ("forge.comment", {**body, "request_id": "b"}),
        ("forge.comment", {**body, "lines": ["a ", {"b": ""}], "clientMutationId": 4}),
        ("bash", {"command": command.replace(" --", "  --"), "description": "Tell them again"}),
        ("mail.send", {"to": "ann", "Idempotency-Key": "k2", "why": "late"}),
    ]
    ids = {}
    for session, calls in (("one", nearly), ("two", again)):
        for n, (tool, arguments) in enumerate(calls):
            ids[session, n] = complete_effect(
                agent, f"{session}-{n}", session, tool, arguments=arguments
            )
    others: list[Any] = [{**body, "pull": 18}, {**body, "id": 3}, {**body, "body": "Looksgood"}]
    others += [{**body, "url": "a", "description": words} for words in ("b", "c")]
    others += [
        {"to": "ann", "why": "soon"},
        {"to": "ann", "uuid": "1"},
    ]  # a single field may carry the meaning
    others += [
        {"request_id": number} for number in (17, 18)
    ]  # these fields are the subject of the call
    others += [{"request_id": number, "why": "as agreed"} for number in (17, 18)]
    others += [
        {"url": PULL, "description": text} for text in ("Draft", "Ready")
    ]  # the description is the content
    others += [
        {"path": "a.py", "content": f"if x:\n    a()\n{indent}b()"} for indent in ("", "    ")
    ]
    for n, arguments in enumerate(others):
        complete_effect(
            agent,
            f"other-{n}",
            "two",
            "mail.send" if "to" in arguments else "forge.comment",
            arguments=arguments,
        )
    planned = agent.plan(
        "slow", "two", tool="bash", arguments={"command": command, "description": "Once more"}
    )
    like = Effect.objects.get(id=ids["one", 2])
    (note,) = execute.compile_query(f"like:{like}", inbox.project, now_us()).notes
    assert note.startswith("Repeated calls are indexed up to entry 0 of ")
    indexer.update_index()
    then = f"asof:#{running_writers.load_last_position()}"
    agent.dispatch(planned)  # the job reads only the dispatch
    indexer.update_index()
    assert sorted(rows(inbox, "duplicate:call")) == sorted([*(f"{s}-{n}" for s, n in ids), "slow"])
    for most in (
        duplicates.MAX_LISTED_POSITIONS,
        1,
    ):  # also with a query per position
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(duplicates, "MAX_LISTED_POSITIONS", most)
            assert rows(inbox, f"like:{like}") == ["slow", "two-2", "one-2"]
            assert rows(inbox, f"like:{like} session:one") == ["one-2"]
            assert rows(inbox, f"like:{like} {then}") == ["two-2", "one-2"]
            assert groups(inbox, f"like:{like} | group tool | count") == [("bash", 3)]
    assert rows(inbox, f"like:{Effect.objects.get(effect_key='other-0')}") == ["other-0"]
    for n in range(len(nearly)):
        chain = viewer.get(reverse("effect_chain", args=[ids["one", n]]), {"view": "json"}).json()
        assert chain["links"][ids["two", n]] == ["a nearly identical call, after it"]
        assert (
            "a similar call ran"
            in viewer.get(reverse("effect", args=[ids["one", n]])).content.decode()
        )
    alone = Effect.objects.get(effect_key="other-0")
    assert " call ran" not in viewer.get(reverse("effect", args=[alone.id])).content.decode()
    assert [most for *_, most in groups(inbox, "session key:two | group key | max(repeats)")] == [2]
    # Many identical calls in between do not hide a similar call; the bound is shown.
    for n in range(7):
        last = complete_effect(agent, f"poll-{n}", "two", "bash", arguments={"command": command})
    indexer.update_index()
    for most_compared, linked in ((chains.MAX_COMPARED, True), (7, False)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(chains, "MAX_COMPARED", most_compared)
            chain = viewer.get(reverse("effect_chain", args=[last]), {"view": "json"}).json()
            assert (ids["one", 2] in chain["links"]) is linked
            assert (
                any("Only the nearest 7 effects" in sentence for sentence in chain["cut"])
                is not linked
            )


def test_a_looping_run_is_found_after_its_end_and_if_it_was_only_reported(
    inbox: InboxScenario,
) -> None:
    agent, viewer = inbox.agent, inbox.organization.client("viewer")
    live = agent.session("live")["id"]
    for n in range(6):
        complete_effect(agent, f"k{n}", "live", "forge.poll", arguments={"pr": 17})
    agent.plan("only-planned", "live", tool="forge.poll", arguments={"pr": 17})
    assert agent.post(f"/sessions/{live}/end", {"status": "completed"}).status_code == 200
    report_session(agent, "imported", 20)
    report_session(agent, "sound", 7)  # four identical calls
    agent.session("beating")
    complete_effect(agent, "once", "beating", "forge.poll", arguments={"pr": 17})
    indexer.update_index()
    name = Session.objects.get(key="live").agent.name
    question = builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[19], {})
    assert groups(inbox, question) == [("imported", "", name, 10), ("live", "", name, 6)]
    assert rows(inbox, "session repeats:>=4") == ["sound", "imported", "live"]
    assert min(nth for nth, _ in groups(inbox, "session | group repeats")) == 2
    assert rows(inbox, "session repeats:1") == rows(inbox, "session is:looped") == []
    page = question_page(viewer, 19, times="7")
    keys = re.findall(r'data-label="Key">\s*<a href="[^"]+"\s*>(?:<[^>]+>)?([^<]+)', page)
    assert [unescape(key_text) for key_text in keys] == ["imported"]
    shown = viewer.get(reverse("session", args=[live])).content.decode()
    (link,) = re.findall(r'href="([^"]+)">\s*same\s+call 6 times', shown)
    assert rows(inbox, parse_qs(urlsplit(unescape(link)).query)["q"][0]) == [
        f"k{n}" for n in range(5, -1, -1)
    ]
    # A cleared loop stays found; without repeated calls it is listed last.
    link = pin_query(question, now_us())
    session = Session.objects.get(key="beating")
    at = running_writers.load_last_position()
    StuckEpisode.objects.create(
        project=inbox.project,
        session=session,
        rule="S5",
        subject=session.id,
        since_us=1,
        seen_us=1,
        seen_sweep=1,
        raised_us=2,
        raised_position=at + 1,
        cleared_us=3,
    )
    agent.session("more")
    for n in range(9):
        complete_effect(agent, f"m{n}", "more", "forge.poll", arguments={"pr": 17})
    indexer.update_index()
    expected = [("imported", 10), ("more", 9), ("live", 6), ("beating", None)]
    assert groups(inbox, question) == [(key, "", name, most) for key, most in expected]
    assert groups(inbox, link) == [("imported", "", name, 10), ("live", "", name, 6)]
    assert rows(inbox, "session is:looped") == ["beating"]
    (most,) = Effect.objects.filter(session__key="live", effect_key="k5")
    assert RepeatedOccurrence.objects.get(position=most.opened_position).nth == 6
    assert isinstance(most.id, UUID)
