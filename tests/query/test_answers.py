"""A query finds in the database what plain Python finds in the same rows."""

from random import Random
from typing import Any

import pytest

from accounts.models import Project
from investigation.query import execute, stream
from investigation.query.entity_registry import ENTITIES
from investigation.query.parser.ast import QueryError
from tests.matrices import IN_FULL
from tests.query import writing
from tests.query.dataset import NOW_US, Dataset, fill

pytestmark = pytest.mark.django_db

QUERIES = {"effect": 300, "session": 90, "gate": 50, "exemption": 20, "event": 40}
ONE_IN = 1 if IN_FULL else 5  # queries is compared


@pytest.mark.deepened
def test_five_hundred_queries_find_in_the_database_what_they_find_in_python() -> None:
    dataset = fill(7)
    live = {
        entity: list(ENTITIES[entity].select_project_rows(dataset.project)) for entity in QUERIES
    }
    found_some = both = 0
    for entity, number in QUERIES.items():
        for n in range(0, number, ONE_IN):
            text, holds = writing.query(Random(f"{entity} {n}"), entity)
            try:
                compiled = execute.compile_query(text, dataset.project, NOW_US)
            except QueryError as fault:  # pragma: no cover - names the query
                raise AssertionError(f"{text}\n{' ' * fault.at}^ {fault.sentence}") from fault
            expected = {row["pk"] for row in dataset.rows(entity) if holds(row)}
            matches = list(execute.matching_rows(compiled).values_list("pk", flat=True))
            assert len(matches) == len(set(matches)), text
            assert set(matches) == expected, text
            arms = execute.disjoint_querysets(compiled)
            by_arms = (
                matches
                if len(arms) == 1
                else [pk for arm in arms for pk in arm.values_list("pk", flat=True)]
            )
            assert sorted(map(str, by_arms)) == sorted(map(str, expected)), text
            if compiled.test.holds is not None:
                assert {row.pk for row in live[entity] if compiled.test.holds(row)} == expected, (
                    text
                )
                both += 1
            found_some += bool(expected)
    assert found_some > 250 // ONE_IN  # most queries match something
    assert both > 200 // ONE_IN


def test_pages_hold_each_match_once_while_rows_arrive(dataset: Dataset) -> None:
    compiled = execute.compile_query("tool:git*", dataset.project, NOW_US)
    expected = sorted(
        (row["opened_position"] for row in dataset.effects if row["tool"].startswith("git")),
        reverse=True,
    )
    seen: list[int] = []
    before = None
    while True:
        page = execute.load_results(compiled, lambda rows: rows, before=before)
        seen += [row.opened_position for row in page.rows]
        before = page.older
        if before is None:
            break
    assert seen == expected
    assert execute.count_matches(compiled) == (len(expected), False)
    assert [
        row.opened_position
        for chunk in stream.stream_matches(compiled, lambda rows: rows)
        for row in chunk
    ] == expected


@pytest.fixture
def dataset(db: None) -> Dataset:
    return fill(11)


def test_every_row_has_a_value_or_has_none_and_never_both(dataset: Dataset) -> None:
    for name, entity in ENTITIES.items():
        everything = set(entity.select_project_rows(dataset.project).values_list("pk", flat=True))
        for field in entity.fields:
            texts = f"has:{field}", f"-has:{field}", f"(has:{field} OR -has:{field})"
            compiled = [
                execute.compile_query(f"{name} {text}", dataset.project, NOW_US) for text in texts
            ]
            some, others, either = [
                set(execute.matching_rows(query).values_list("pk", flat=True)) for query in compiled
            ]
            assert (some | others, some & others, either) == (everything, set(), everything), (
                name,
                field,
            )


def test_groups_count_and_measure(dataset: Dataset) -> None:
    text = "effect attempts:>0 | group tool,agent | count, max(attempts), p95(took), distinct(ref) | top 7"
    table = execute.load_results(
        execute.compile_query(text, dataset.project, NOW_US), lambda rows: rows
    ).groups
    assert table is not None
    assert table.more
    expected: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in dataset.effects:
        if row["attempt_count"] > 0:
            expected.setdefault((row["tool"], row["agent"]), []).append(row)
    assert len(table.rows) == 7
    sizes = sorted((len(rows) for rows in expected.values()), reverse=True)
    assert [figures[0] for _, figures in table.rows] == sizes[:7]
    for key, figures in table.rows:
        rows = expected[key]
        took = sorted(
            row["settled_at_us"] - row["dispatched_at_us"]
            for row in rows
            if row["settled_at_us"] is not None and row["dispatched_at_us"] is not None
        )
        rank = took[(len(took) * 95 + 99) // 100 - 1] if took else None
        assert figures == (
            len(rows),
            max(row["attempt_count"] for row in rows),
            rank,
            len({r["ref"] for r in rows}),
        )


def test_a_sequence_matches_followed_and_missing_events(dataset: Dataset) -> None:
    def follows(row: dict[str, Any], *, absent: bool, within_us: int) -> bool:
        begun = [event for event in row["events"] if event["kind"] == "effect.dispatched"]
        for event in begun:
            after = [
                other
                for other in event["effect"]["events"]
                if other["kind"] == "effect.acknowledged"
                and other["position"] > event["position"]
                and other["received_us"] <= event["received_us"] + within_us
            ]
            if absent and not after and event["received_us"] < NOW_US - within_us:
                return True
            if not absent and after:
                return True
        return False

    for entity in ("effect", "session"):
        for absent in (True, False):
            text = f"{entity} seq(effect.dispatched -> {'!' if absent else ''}effect.acknowledged within 5m)"
            compiled = execute.compile_query(text, dataset.project, NOW_US)
            matches = set(execute.matching_rows(compiled).values_list("pk", flat=True))
            rows = dataset.rows(entity)
            assert matches == {
                row["pk"] for row in rows if follows(row, absent=absent, within_us=300_000_000)
            }
            assert matches


@pytest.mark.parametrize(
    ("text", "at", "sentence"),
    [
        ("tol:git", 0, "did you mean “tool”"),
        ("tool:git stat:failed", 9, "did you mean “state”"),
        ("state:faild", 6, "did you mean “failed”"),
        ("effect status:failed", 7, "a field of sessions and gates"),
        ("attempts:many", 9, "not a whole number"),
        ("at:yesterday", 3, "not a time"),
        ("took:>2x", 6, "not a length of time"),
        ("is:lost", 3, "An effect cannot be “lost”"),
        ("(tool:a", 0, "not closed"),
        ('tool:"a', 5, "not closed"),
        ("tool:[a", 5, "not closed"),
        ("tool:a)", 6, "has no counterpart"),
        ("tool:a OR", 9, "Add a condition"),
        ("tool:>a", 0, "does not support this operator"),
        ("attempts:>@tool", 0, "no order"),
        ("count(effect: tool:a)", 0, "compared with a number"),
        ("exemption any(gate: tool:a)", 10, "have no gate rows"),
        ("gate seq(effect.planned -> effect.failed)", 5, "need sessions or effects"),
        ("seq(!effect.planned -> effect.failed)", 4, "first step"),
        ("any(effects: tool:a)", 4, "not one of effect"),
        ("tool:a | count", 13, "group stage is missing"),
        ("tool:a | group took", 15, "Cannot group by"),
        ("tool:a | group tool | avg(tool)", 22, "a number, time or length"),
        ("at:>7d", 0, "An age cannot be combined"),
        ("at:2026-11-20..2026-11-01", 0, "ends before it starts"),
        ("(" * 13 + "tool:a" + ")" * 13, 12, "at most 12 deep"),
        ("tool:*", 5, "has:field"),
        ("agent:[a,b", 6, "not closed"),
    ],
)
def test_an_error_points_at_the_character_and_states_what_to_do(
    text: str, at: int, sentence: str, django_project: Project
) -> None:
    with pytest.raises(QueryError) as caught:
        execute.compile_query(text, django_project, NOW_US)
    assert sentence in caught.value.sentence
    assert caught.value.at == min(at, len(text) - 1) if at >= len(text) else caught.value.at == at


@pytest.fixture
def django_project(db: None) -> Project:
    return Project.objects.create(name="empty")


def test_a_name_that_is_not_there_is_noted(django_project: Project) -> None:
    django_project.agents.create(name="deploy")
    compiled = execute.compile_query("agent:depoly", django_project, NOW_US)
    assert list(compiled.notes) == [
        "“depoly” is not the name of an agent in this project; did you mean “deploy”?"
    ]
    assert execute.count_matches(compiled) == (0, False)
