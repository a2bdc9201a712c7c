"""Working state is a function of facts: any delivery of the same reports gives the same rows."""

import random
from collections.abc import Sequence
from itertools import permutations
from typing import Any, Final

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from journal import order_keys
from journal.models import Body
from sessions import checkpoints, decisions, handoffs, sessions
from sessions.models import Checkpoint, Decision, Handoff, ObservedFact, Session
from tests.api.api_client import Caller
from tests.ledger.test_convergence import undone
from tests.matrices import count_examples
from tests.sessions.test_convergence import SOME, deliveries, last_to_arrive

pytestmark = pytest.mark.django_db
Fact = dict[str, Any]
# The server's clocks, journal positions and version counters depend on the delivery and are no
# part of the state.
NO_STATE: Final = {
    *(
        "id",
        "position",
        "opened_position",
        "recorded_position",
        "concluded_position",
        "written_position",
        "version",
    ),
    *(
        "created_at_us",
        "seen_at_us",
        "concluded_at_us",
        "accepted_at_us",
        "accept_by_us",
        "observed_at_us",
    ),
    "fresh_until_us",
}


def stored() -> list[list[Fact]]:
    """Return all rows, the awaited handoffs, and the texts of the winning entries."""
    tables: Sequence[tuple[Any, str]] = (
        (Session.objects.order_by("key"), "opened_position"),
        (Checkpoint.objects.order_by("session_id", "id"), "opened_position"),
        (Decision.objects.order_by("session_id", "key"), "recorded_position"),
        (Handoff.objects.order_by("session_id", "key"), "written_position"),
        (ObservedFact.objects.order_by("session_id", "name", "source"), "position"),
    )
    contents = []
    for table, position in tables:
        rows = list(table.values())
        texts = (
            dict(Body.objects.values_list("entry_id", "text")) if table.model is not Session else {}
        )
        contents.append(
            [
                {name: value for name, value in row.items() if name not in NO_STATE}
                | {"awaited": row.get("accept_by_us") is not None, "text": texts.get(row[position])}
                for row in rows
            ]
        )
    return contents


def _of(
    kind: str, optional: dict[str, Any] | None = None, **fields: Any
) -> tuple[str, st.SearchStrategy[Fact]]:
    needed = {"kind": st.just(kind), **fields}
    return kind, st.fixed_dictionaries(needed, optional=optional or {})


SESSIONS = st.sampled_from(["s", "t"])
KEYS = st.sampled_from(["one", "two"])
FACTS: Final = dict(
    [
        _of("session.started", {"title": st.sampled_from(["a", "b"]), "branched_from": SESSIONS}),
        _of(
            "session.changed",
            {
                "title": st.sampled_from(["c", "nul \0 inside"]),
                "cursor": st.sampled_from(["1", "2"]),
                "status": st.sampled_from(["running", "waiting", "suspended"]),
                "waiting_on": st.just("CI"),
                "merge_into": SESSIONS,
                "merge_intent": st.sampled_from(["soon", "never"]),
            },
        ),
        _of("session.waiting"),
        _of("session.ended", status=st.sampled_from(["completed", "failed"])),
        _of("session.branched", branched_from=SESSIONS),
        _of("session.merged", into=SESSIONS),
        _of("checkpoint.written", {"cursor": st.sampled_from(["3", "4"]), "summary": st.just("x")}),
        _of("decision.recorded", decision=KEYS, choice=st.sampled_from(["left", "right"])),
        _of("decision.concluded", decision=KEYS, status=st.sampled_from(["done", "failed"])),
        _of("handoff.written", handoff=KEYS, in_progress=st.sampled_from([["a"], ["b", "c"]])),
        _of("handoff.accepted", handoff=KEYS),
        _of("fact.observed", name=st.just("head"), value=st.integers(0, 2)),
    ]
)


@st.composite
def stories(draw: st.DrawFn, about: str = "") -> list[Fact]:
    """Up to twelve facts of some kinds about two sessions, each with an id, a source and possibly a
    sequence number."""
    kinds = [strategy for kind, strategy in FACTS.items() if kind.startswith(about)]
    facts = []
    for number in range(draw(st.integers(2, 12))):
        fact = draw(st.one_of(kinds))
        fact |= {
            "id": draw(st.sampled_from("abcdef")) + str(number),
            "session": draw(SESSIONS),
            "source": draw(st.sampled_from(["tester", "tester/hook"])),
        }
        sequence = draw(st.none() | st.integers(0, 3))
        facts.append(fact if sequence is None else fact | {"producer_seq": sequence})
    return facts


def check(caller: Caller, facts: list[Fact], chance: random.Random) -> None:
    def after(batches: Sequence[Sequence[Fact]]) -> list[list[Fact]]:
        with undone():
            for batch in batches:
                answer = caller.report(list(batch))
                assert answer.status_code == 200, answer.text
            return stored()

    expected = after([facts])
    for _ in range(2):
        assert after(deliveries(facts, chance)) == expected


@settings(SOME, max_examples=count_examples(5, 12))
@given(facts=stories(), chance=st.randoms(use_true_random=False))
def test_the_endpoint_gives_one_state_for_every_delivery(
    agent: Caller, facts: list[Fact], chance: random.Random
) -> None:
    check(agent, facts, chance)


MUTANTS: Final[list[tuple[Any, str]]] = [
    (decisions, "decision."),
    (handoffs, "handoff."),
    (sessions, "session."),
]


@pytest.mark.once
@pytest.mark.parametrize(("module", "about"), MUTANTS, ids=["decisions", "handoffs", "sessions"])
def test_a_fold_that_keeps_the_last_report_to_arrive_is_caught(
    agent: Caller, monkeypatch: pytest.MonkeyPatch, module: Any, about: str
) -> None:
    assert module.is_earlier_mark is order_keys.is_earlier_mark
    monkeypatch.setattr(module, "is_earlier_mark", last_to_arrive)

    # The same examples every time; an early one fails.
    @seed(1)
    @settings(SOME, max_examples=200, database=None, phases=[*SOME.phases][-1:])
    @given(facts=stories(about), chance=st.randoms(use_true_random=False))
    def property_of_the_mutant(facts: list[Fact], chance: random.Random) -> None:
        check(agent, facts, chance)

    with pytest.raises(AssertionError):
        property_of_the_mutant()


def test_a_sixth_checkpoint_replaces_the_earliest_and_not_the_first_to_arrive(
    agent: Caller,
) -> None:
    reports = [
        {
            "id": f"c-{n}",
            "kind": "checkpoint.written",
            "session": "s",
            "summary": str(n),
            "producer_seq": n,
        }
        for n in range(checkpoints.KEPT_CHECKPOINTS + 2)
    ]
    for chance in range(3):
        with undone():
            for batch in deliveries(reports, random.Random(chance)):
                agent.report(list(batch))
            texts = Body.objects.filter(entry_id__in=Checkpoint.objects.values("opened_position"))
            assert sorted(
                text[text.index('"id":"c-') + 8] for text in texts.values_list("text", flat=True)
            ) == list("23456")


def test_a_handoff_is_awaited_again_if_the_later_one_was_reported_before(agent: Caller) -> None:
    """The key "one" is reported twice and its first report counts, so "two" is the latest."""
    reports = [
        {
            "id": f"h-{n}",
            "kind": "handoff.written",
            "session": "s",
            "handoff": key,
            "producer_seq": n,
        }
        for n, key in ((1, "one"), (2, "two"), (3, "one"))
    ]
    for facts in permutations(reports):
        with undone():
            for fact in facts:
                agent.report([fact])
            assert [row.key for row in Handoff.objects.filter(accept_by_us__isnull=False)] == [
                "two"
            ]
