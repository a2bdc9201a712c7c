"""What was done twice, and runs that went in circles: asked on the pages, also long after, and of
what was reported."""

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
from journal import settled_position
from ledger.models import Effect
from monitoring.models import StuckEpisode
from pages.effects import chain as chains
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.approvals.inbox_scenario import Desk
from tests.pages.people import House

pytestmark = pytest.mark.django_db
PULL = "https://forge.example/web/pull/17"
HELLO = {"body": "Looks good to me"}


@pytest.fixture
def book(house: House, agent: Caller, settled: None, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(indexer, "load_settled_position", settled_position.load_settled_position)
    return Desk(house, agent)


def did(agent: Caller, key: str, session: str, tool: str = "forge.comment", **fields: Any) -> str:
    """Plan an effect and carry it out; returns its id."""
    effect = agent.plan(key, session, tool=tool, **{"arguments": HELLO, **fields})
    agent.dispatch(effect)
    agent.acknowledge(effect, result={"n": key})
    return str(effect["id"])


def reported(agent: Caller, session: str, calls: int) -> None:
    """Report a session as importers do: after the event, of the same call again and again, and that
    it ended."""
    facts: list[dict[str, Any]] = [{"kind": "session.started", "mode": "reported"}]
    for n in range(calls):
        of = {"effect_key": f"call:{n}"}
        command = "make test" if n % 2 == 0 else f"edit line {n}"
        facts.append(
            {"kind": "effect.planned", "tool": "bash", "arguments": {"command": command}, **of}
        )
        facts.append({"kind": "effect.dispatched", "attempt": 1, **of})
        facts.append({"kind": "effect.acknowledged", "attempt": 1, "outcome": "error", **of})
    facts.append({"kind": "session.ended", "status": "failed"})
    answer = agent.report([{"id": new_key(), "session": session, **fact} for fact in facts])
    assert answer.status_code == 200, answer.text


def facts(rows: Iterable[Any]) -> list[dict[str, Any]]:
    told = [{name: value for name, value in row.items() if name != "id"} for row in rows]
    return sorted(told, key=lambda row: (row["position"], row["sort"]))


def groups(desk: Desk, text: str) -> list[tuple[Any, ...]]:
    asked = execute.compile_query(text, desk.project, now_us())
    answer = execute.load_results(asked, result_columns.prepare_rows(asked.entity.name))
    assert answer.groups is not None
    return [tuple(row) for row in result_columns.groups_to_json(answer.groups)]


def by_handle(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The order of groups with as many rows: tool, resource, and the number of the handle."""
    return sorted(rows, key=lambda row: (*row[:2], int(row[2].removeprefix("e_"))))


def rows(desk: Desk, text: str) -> list[Any]:
    asked = execute.compile_query(text, desk.project, now_us())
    answer, reader = (
        execute.load_results(asked, result_columns.prepare_rows(asked.entity.name)),
        Reader(desk.project, now_us()),
    )
    return [
        result_columns.row_to_json(asked.entity.name, row, reader)["key"] for row in answer.rows
    ]


def test_handles_and_numbers_of_groups_are_ordered_by_their_number() -> None:
    like = ENTITIES["effect"].fields["like"]
    assert sorted([101, 9, None, 92], key=grouping.key_rank) == [None, 9, 92, 101]
    assert sorted(["mail", None, "bash"], key=grouping.key_rank) == [None, "bash", "mail"]
    assert grouping.format_key([like, like], (92, None)) == ("e_92", None)


def asked(viewer: Client, number: int, **given: str) -> str:
    """The page to which the form of a question leads."""
    answer = viewer.get(reverse("question", args=[number]), given, follow=True)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_what_was_done_twice_is_found_in_one_session_and_in_two_and_leads_to_both_chains(
    book: Desk,
) -> None:
    agent, viewer = book.agent, book.house.client("viewer")
    book.declare("file.read", "read", "read_only")
    for key in ("one", "two", "three"):
        agent.session(key)
    target: dict[str, Any] = {"target": {"repository": "web", "resource": PULL}}
    first = did(agent, "a", "one", **target)
    second = did(agent, "b", "two", arguments={"body": "Hm", "key": 2}, **target)
    mail = [did(agent, key, "three", "mail.send", arguments={"to": "ann"}) for key in ("m", "n")]
    twins = [
        did(agent, "x", session, "bash", arguments={"command": "gh pr comment 17"})
        for session in ("one", "two")
    ]
    for session in (
        "one",
        "two",
    ):  # what is read does nothing, what is other is other, and what is refused never ran
        did(agent, "read", session, "file.read", arguments={"path": "README"})
        did(agent, f"{session}-alone", session, "bash", arguments={"command": session})
    agent.plan("never", "three", tool="bash", arguments={"command": "two"})
    unread = execute.compile_query(
        builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[18], {}),
        book.project,
        now_us(),
    )
    (note,) = unread.notes
    assert note.startswith("Repeated calls are indexed up to entry 0 of ")
    assert execute.compile_query(
        "session | group key | max(repeats)", book.project, now_us()
    ).notes == (note,)
    indexer.update_index()
    assert execute.compile_query(unread.text, book.project, now_us()).notes == ()
    stood = list(RepeatedOccurrence.objects.order_by("id").values())
    indexer.reset_index()
    indexer.update_index()
    assert (
        list(RepeatedOccurrence.objects.order_by("id").values()) == stood
    )  # reading anew changes nothing
    for made in (RepeatedOccurrence, FirstOccurrence):
        made.objects.all().delete()
    with (
        pytest.MonkeyPatch.context() as patched
    ):  # nor does it matter how much is read at once: it ran when it ran
        patched.setattr(indexer, "_STEP_ENTRIES", dict.fromkeys(indexer._STEP_ENTRIES, 2))
        indexer.reset_index()
        indexer.update_index()
    assert facts(RepeatedOccurrence.objects.values()) == facts(stood)
    question = builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[18], {})
    firsts = [f"e_{Effect.objects.get(id=one).opened_position}" for one in (twins[0], mail[0])]
    told = [("bash", "", firsts[0], 2, 2), ("mail.send", "", firsts[1], 2, 1)]
    assert groups(book, question) == told
    assert (
        groups(
            book,
            builtin_questions.fill_question(
                builtin_questions.QUESTIONS_BY_NUMBER[18], {"words": 'gh" 17'}
            ),
        )
        == told[:1]
    )
    aimed = builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[21], {})
    assert groups(book, aimed) == [("forge.comment", PULL, 2, 2, 2)]
    assert rows(book, "duplicate:target") == ["b", "a"]
    assert sorted(rows(book, "duplicate:call state:acknowledged")) == ["m", "n", "x", "x"]
    assert sorted(rows(book, "has:duplicate -duplicate:call")) == ["a", "b"]
    # In the browser: the question, a group, the effects, and from the chain of either the other
    # one.
    page = asked(viewer, 21, tool="forge.comment")
    (link,) = re.findall(r'data-label="Tool">\s*<a href="([^"]+)"', page)
    found = viewer.get(unescape(link)).content.decode()
    for pair, how in (
        ((first, second), "the same tool on the same resource"),
        (twins, "in another session"),
        (mail, ""),
    ):
        for own, other in (pair, pair[::-1]):
            assert pair is not (first, second) or reverse("effect", args=[own]) in found
            chain = viewer.get(reverse("effect_chain", args=[own]), {"view": "json"}).json()
            assert any(how in said for said in chain["links"][other]), (pair, chain["links"])
    # A link shows the same when more was done, and of very many each is asked for itself.
    link = pin_query(question, now_us())
    did(agent, "c", "three", **target)
    did(agent, "o", "one", "bash", arguments={"command": "one"})
    indexer.update_index()
    assert groups(book, link) == told
    alone, comment = (
        f"e_{Effect.objects.get(effect_key=key).opened_position}" for key in ("one-alone", "a")
    )
    more = [("bash", "", alone, 2, 1), ("forge.comment", PULL, comment, 2, 2)]
    assert groups(book, question) == by_handle([*told, *more])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(duplicates, "MAX_LISTED_POSITIONS", 1)
        assert groups(book, link) == told
        assert groups(book, "effect -duplicate:call has:duplicate | group tool") == [
            ("forge.comment", 1)
        ]
        assert rows(book, "has:duplicate -duplicate:call") == ["b"]
    # Neighbours do not count.
    assert not RepeatedOccurrence.objects.exclude(project=book.project).exists()
    assert set(FirstOccurrence.objects.values_list("project", flat=True)) == {book.project.id}


def test_each_call_that_was_done_twice_is_a_row_whose_link_finds_it_and_equal_targets_are_another_question(
    book: Desk,
) -> None:
    agent, viewer = book.agent, book.house.client("viewer")
    agent.session("one")
    target: dict[str, Any] = {"target": {"repository": "web", "resource": PULL}}
    words = ("first", "second", "first", "third", "second", "first")
    keys = [f"{word}-{n}" for n, word in enumerate(words)]
    for key, word in zip(keys, words, strict=True):
        did(agent, key, "one", arguments={"body": word}, **target)
    for n, to in enumerate(["ann", "bob"] * 2):
        did(agent, f"mail-{n}", "one", "mail.send", arguments={"to": to})
    indexer.update_index()
    question = builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[18], {})
    first, second, ann, bob = (
        f"e_{Effect.objects.get(effect_key=key).opened_position}"
        for key in ("first-0", "second-1", "mail-0", "mail-1")
    )
    calls = [("forge.comment", PULL, first, 3, 1), ("forge.comment", PULL, second, 2, 1)]
    mail = [("mail.send", "", ann, 2, 1), ("mail.send", "", bob, 2, 1)]
    assert groups(book, question) == [calls[0], *by_handle([calls[1], *mail])]
    assert groups(
        book, builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[21], {})
    ) == [("forge.comment", PULL, 6, 3, 1)]
    page = asked(viewer, 18, tool="forge.comment")
    link, other = re.findall(r'data-label="Tool">\s*<a href="([^"]+)"', page)
    for one, word in ((link, "first"), (other, "second")):
        query = parse_qs(urlsplit(unescape(one)).query)["q"][0]
        assert rows(book, query) == [key for key in reversed(keys) if key.startswith(word)]
    assert rows(book, "has:like tool:mail.send") == ["mail-3", "mail-2", "mail-1", "mail-0"]
    assert rows(book, "-has:like") == ["third-3"]
    # What changed since is told as it stood: one of the calls is compensated, another made once
    # more.
    then = pin_query(question, now_us())
    of: dict[str, Any] = {"session": "one", "effect_key": "undo"}
    undo: list[dict[str, Any]] = [
        {
            "kind": "effect.planned",
            "tool": "mail.recall",
            "arguments": {"of": "ann"},
            "compensates": "mail-0",
        },
        {"kind": "effect.acknowledged", "attempt": 1, "outcome": "ok"},
    ]
    assert agent.report([{"id": new_key(), **one, **of} for one in undo]).status_code == 200
    assert Effect.objects.get(effect_key="mail-0").state == "compensated"
    did(agent, "mail-4", "one", "mail.send", arguments={"to": "bob"})
    indexer.update_index()
    assert groups(book, then) == [calls[0], *by_handle([calls[1], *mail])]
    assert ("mail.send", "", ann, 1, 1) in groups(book, question)
    assert ("mail.send", "", bob, 3, 1) in groups(book, question)


def test_what_only_reads_repeats_nothing(book: Desk) -> None:
    agent = book.agent
    book.declare("file.read", "read", "read_only")
    for session in ("reads", "acts"):
        agent.session(session)
    for n in range(6):
        did(agent, f"read-{n}", "reads", "file.read", arguments={"path": "README"})
    for n in range(2):
        did(agent, f"act-{n}", "acts", "bash", arguments={"command": "make"})
    indexer.update_index()
    assert rows(book, "session repeats:>=2") == rows(book, "session has:repeats") == ["acts"]
    name = Session.objects.get(key="acts").agent.name
    assert groups(
        book,
        builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[19], {"times": "2"}),
    ) == [("acts", "", name, 2)]
    assert groups(book, "session | group key | max(repeats)") == [("acts", 2), ("reads", None)]
    viewer = book.house.client("viewer")
    page = viewer.get(
        reverse("session", args=[Session.objects.get(key="reads").id])
    ).content.decode()
    assert "the same call" not in page
    assert (
        len(rows(book, f"like:e_{Effect.objects.get(effect_key='read-0').opened_position}")) == 6
    )  # named, it is found


def test_a_call_that_was_refused_before_it_ran_was_not_done(book: Desk) -> None:
    agent = book.agent
    agent.session("s-1")
    of: dict[str, Any] = {"session": "s-1", "effect_key": "refused"}
    refused: list[dict[str, Any]] = [
        {
            "id": new_key(),
            "kind": "effect.planned",
            "tool": "bash",
            "arguments": {"command": "make"},
            **of,
        },
        {"id": new_key(), "kind": "effect.failed", "attempt": 1, "reason": "rejected", **of},
    ]
    assert agent.report(refused).status_code == 200
    did(agent, "ran", "s-1", "bash", arguments={"command": "make"})
    indexer.update_index()
    assert rows(book, "has:duplicate") == []
    late = {"id": new_key(), "kind": "effect.acknowledged", "attempt": 1, "outcome": "ok", **of}
    assert agent.report([late]).status_code == 200  # it ran after all
    indexer.update_index()
    assert rows(book, "duplicate:call") == ["ran", "refused"]


def test_the_same_call_in_nearly_the_same_words_is_the_same_and_another_is_not(book: Desk) -> None:
    agent, viewer = book.agent, book.house.client("viewer")
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
            ids[session, n] = did(agent, f"{session}-{n}", session, tool, arguments=arguments)
    others: list[Any] = [{**body, "pull": 18}, {**body, "id": 3}, {**body, "body": "Looksgood"}]
    others += [{**body, "url": "a", "description": words} for words in ("b", "c")]
    others += [
        {"to": "ann", "why": "soon"},
        {"to": "ann", "uuid": "1"},
    ]  # a word about nothing else may be the matter
    others += [
        {"request_id": number} for number in (17, 18)
    ]  # not the call's own names: what it is about
    others += [{"request_id": number, "why": "as agreed"} for number in (17, 18)]
    others += [
        {"url": PULL, "description": text} for text in ("Draft", "Ready")
    ]  # what is written there
    others += [
        {"path": "a.py", "content": f"if x:\n    a()\n{indent}b()"} for indent in ("", "    ")
    ]
    for n, arguments in enumerate(others):
        did(
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
    (note,) = execute.compile_query(f"like:{like}", book.project, now_us()).notes
    assert note.startswith("Repeated calls are indexed up to entry 0 of ")
    indexer.update_index()
    then = f"asof:#{settled_position.load_settled_position()}"
    agent.dispatch(planned)  # of which the job reads nothing but that it runs
    indexer.update_index()
    assert sorted(rows(book, "duplicate:call")) == sorted([*(f"{s}-{n}" for s, n in ids), "slow"])
    for most in (
        duplicates.MAX_LISTED_POSITIONS,
        1,
    ):  # and where they are so many that each is asked for itself
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(duplicates, "MAX_LISTED_POSITIONS", most)
            assert rows(book, f"like:{like}") == ["slow", "two-2", "one-2"]
            assert rows(book, f"like:{like} session:one") == ["one-2"]
            assert rows(book, f"like:{like} {then}") == ["two-2", "one-2"]
            assert groups(book, f"like:{like} | group tool | count") == [("bash", 3)]
    assert rows(book, f"like:{Effect.objects.get(effect_key='other-0')}") == ["other-0"]
    for n in range(len(nearly)):
        chain = viewer.get(reverse("effect_chain", args=[ids["one", n]]), {"view": "json"}).json()
        assert chain["links"][ids["two", n]] == ["a nearly identical call, after it"]
        assert (
            "a similar call ran"
            in viewer.get(reverse("effect", args=[ids["one", n]])).content.decode()
        )
    alone = Effect.objects.get(effect_key="other-0")
    assert (
        "a similar call ran" not in viewer.get(reverse("effect", args=[alone.id])).content.decode()
    )
    assert [most for *_, most in groups(book, "session key:two | group key | max(repeats)")] == [2]
    # Neither does it hide one in other words that many were made to the letter between the two; a
    # bound is told of.
    for n in range(7):
        last = did(agent, f"poll-{n}", "two", "bash", arguments={"command": command})
    indexer.update_index()
    for looked, there in ((chains.MAX_COMPARED, True), (7, False)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(chains, "MAX_COMPARED", looked)
            chain = viewer.get(reverse("effect_chain", args=[last]), {"view": "json"}).json()
            assert (ids["one", 2] in chain["links"]) is there
            assert any("Only the nearest 7 effects" in said for said in chain["cut"]) is not there


def test_a_run_that_went_in_circles_is_found_after_it_ended_and_where_it_was_only_reported(
    book: Desk,
) -> None:
    agent, viewer = book.agent, book.house.client("viewer")
    live = agent.session("live")["id"]
    for n in range(6):
        did(agent, f"k{n}", "live", "forge.poll", arguments={"pr": 17})
    agent.plan("only-planned", "live", tool="forge.poll", arguments={"pr": 17})
    assert agent.post(f"/sessions/{live}/end", {"status": "completed"}).status_code == 200
    reported(agent, "imported", 20)
    reported(agent, "sound", 7)  # four times the same
    agent.session("beating")
    did(agent, "once", "beating", "forge.poll", arguments={"pr": 17})
    indexer.update_index()
    name = Session.objects.get(key="live").agent.name
    question = builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[19], {})
    assert groups(book, question) == [("imported", "", name, 10), ("live", "", name, 6)]
    assert rows(book, "session repeats:>=4") == ["sound", "imported", "live"]
    assert min(nth for nth, _ in groups(book, "session | group repeats")) == 2
    assert rows(book, "session repeats:1") == rows(book, "session is:looped") == []
    page = asked(viewer, 19, times="7")
    keys = re.findall(r'data-label="Key">\s*<a href="[^"]+"\s*>(?:<[^>]+>)?([^<]+)', page)
    assert [unescape(one) for one in keys] == ["imported"]
    shown = viewer.get(reverse("session", args=[live])).content.decode()
    (link,) = re.findall(r'href="([^"]+)">\s*same\s+call 6 times', shown)
    assert rows(book, parse_qs(urlsplit(unescape(link)).query)["q"][0]) == [
        f"k{n}" for n in range(5, -1, -1)
    ]
    # What the watch raised stays found when it is over; it has no repeated call, and stands last.
    link = pin_query(question, now_us())
    session = Session.objects.get(key="beating")
    at = settled_position.load_settled_position()
    StuckEpisode.objects.create(
        project=book.project,
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
        did(agent, f"m{n}", "more", "forge.poll", arguments={"pr": 17})
    indexer.update_index()
    told = [("imported", 10), ("more", 9), ("live", 6), ("beating", None)]
    assert groups(book, question) == [(key, "", name, most) for key, most in told]
    assert groups(book, link) == [("imported", "", name, 10), ("live", "", name, 6)]
    assert rows(book, "session is:looped") == ["beating"]
    (most,) = Effect.objects.filter(session__key="live", effect_key="k5")
    assert RepeatedOccurrence.objects.get(position=most.opened_position).nth == 6
    assert isinstance(most.id, UUID)
