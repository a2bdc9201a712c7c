"""Where the results of checks stand on the card: above the facts, beside them, in the claim."""

from dataclasses import replace
from typing import Any

import pytest

from approvals.checks.check_results import CheckResult, Compared
from approvals.diff.from_arguments import Changes
from approvals.review.card import CallArgument, Card, CardLine
from approvals.review.shown_checks import (
    arrange_checks,
    find_marked_offsets,
    find_shape,
    list_row_flags,
)

CLAIM = "A dry run in staging, docs only."
CARD = Card(
    tool="mail.send",
    intent="v1:abcd",
    verified="equal",
    pieces=(
        CallArgument("body", "Hello", "text"),
        CallArgument("dry_run", "false", "true or false"),
        CallArgument("a.b", "1", "number"),
        CallArgument("patch", "+x", "text", shown_above=True),
    ),
    hidden=0,
    blanks=0,
    complete=True,
    changes=Changes(),
    changes_known=False,
    radius=(
        CardLine("Repository", "unknown", "unknown"),
        CardLine("Environment", "staging", "sent by the agent, unverified"),
    ),
    undo=(),
    requirement_lines=(),
    claim=CLAIM,
    risk="high",
)


def result(check: str = "lookalike", level: str = "danger", **more: Any) -> CheckResult:
    return CheckResult(check, level, **{"short": "odd", "title": "Odd.", **more})


def against(words: str, concerns: str, **more: Any) -> CheckResult:
    start = CLAIM.index(words)
    title = f"Claim “{words}”: it is not."
    return result(
        "claim", title=title, concerns=concerns, phrase=(start, start + len(words)), **more
    )


def test_letters_follow_the_claim_and_stand_on_the_phrase_and_beside_the_fact() -> None:
    shown = arrange_checks(
        CARD,
        [
            against("docs only", "changes.docs/a.md"),
            against("staging", "target.environment"),
            against("dry run", "arguments.dry_run"),
        ],
    )
    assert [(piece.text, piece.letter) for piece in shown.claim] == [
        ("A ", ""),
        ("dry run", "a"),
        (" in ", ""),
        ("staging", "b"),
        (", ", ""),
        ("docs only", "c"),
        (".", ""),
    ]
    assert [(note.letter, note.phrase, note.text) for note in shown.of_changes] == [
        ("c", "docs only", "it is not.")
    ]
    assert [[note.letter for note in line.notes] for line in shown.radius] == [["b"]]
    assert shown.others[0].piece.name == "dry_run", "arguments with warnings come first"
    assert shown.others[0].is_warned
    # The note beside the argument is in view next to the claim, so it is not repeated above.
    assert [finding.letter for finding in shown.findings] == ["c", "b"]
    assert [note.is_repeated for note in shown.others[0].notes] == [False]


def test_contradictions_alone_are_above_the_facts_as_well() -> None:
    few = [against("dry run", "arguments.dry_run"), against("staging", "arguments.body")]
    shown = arrange_checks(CARD, few)
    assert [finding.result for finding in shown.findings] == few
    assert shown.listed == ()
    many = arrange_checks(CARD, [*few, against("docs only", "arguments.a.b")])
    assert many.findings == ()
    assert [note.letter for note in many.listed] == ["a", "b", "c"]


def test_a_long_card_repeats_contradictions_above_the_facts() -> None:
    long_card = replace(CARD, pieces=(*CARD.pieces, CallArgument("text", "x" * 1300, "text")))
    listed = [result(), against("dry run", "arguments.dry_run")]
    assert [finding.letter for finding in arrange_checks(long_card, listed).findings] == ["", "a"]
    assert [finding.letter for finding in arrange_checks(CARD, listed).findings] == [""]


@pytest.mark.parametrize(
    ("concerns", "place"),
    [
        ("arguments.a.b.c", "a.b"),
        ("arguments.body", "body"),
        ("arguments.patch", "changes"),
        ("arguments.absent", "arguments"),
        ("arguments", "arguments"),
        ("changes", "changes"),
        ("preconditions.head", "undo"),
        ("target.environment", "Environment"),
        ("target.resource", ""),
        ("request", ""),
    ],
)
def test_a_note_stands_at_the_fact_that_it_concerns(concerns: str, place: str) -> None:
    shown = arrange_checks(CARD, [result(level="notice", concerns=concerns)])
    places = {
        **{noted.piece.name: noted.notes for noted in shown.others},
        **{noted.line.label: noted.notes for noted in shown.radius},
        "changes": shown.of_changes,
        "arguments": shown.of_arguments,
        "undo": shown.of_undo,
        "": shown.quiet_results,
    }
    assert [name for name, notes in places.items() if notes] == [place]
    assert shown.findings == ()


def test_what_nobody_sent_is_one_line() -> None:
    shown = arrange_checks(
        CARD,
        [
            result("missing_evidence", "danger", title="May remove commits: not reported."),
            result("missing_evidence", "warning", title="Ticket.", concerns="evidence"),
            result("missing_evidence", "notice", title="Not provided: OPS number"),
        ],
    )
    assert [item.text for item in shown.missing] == [
        "may remove commits: not reported",
        "ticket",
        "OPS number",
    ]
    assert len(shown.findings) == 1, "grave evidence also stands before the facts"
    assert [line.line.label for line in shown.radius] == ["Environment"]


def test_phrases_that_overlap_or_are_outside_the_claim_lose_no_text() -> None:
    results = [
        result(phrase=(2, 9)),
        result(phrase=(4, 20)),
        result(phrase=(0, 999)),
        result(phrase=(5, 5)),
    ]
    shown = arrange_checks(CARD, results)
    assert "".join(piece.text for piece in shown.claim) == CLAIM
    assert [piece.letter for piece in shown.claim if piece.letter] == ["a", "b"]


def test_marked_letters_are_found_wherever_the_value_occurs() -> None:
    marks = [("n\u043ert.example", (1,))]
    assert find_marked_offsets("to n\u043ert.example, n\u043ert.example", marks) == {4, 18}
    assert find_marked_offsets("nort.example", marks) == set()
    compared = (Compared("Requested", "n\u043ert.example", marked=(1,)), Compared("Known", "nort"))
    assert arrange_checks(CARD, [result(compared=compared)]).marks == tuple(marks)


def test_flags_of_a_row_name_warnings_only_and_count_contradictions() -> None:
    lookalike = result(short="lookalike letter")
    notice = result("first_use", "notice", short="first use of domain")
    both = [against("dry run", "changes"), against("staging", "changes")]
    assert list_row_flags([lookalike, *both, notice]) == [
        ("danger", "warn", "lookalike letter"),
        ("danger", "unlike", "2 against claim"),
    ]
    assert list_row_flags(both[:1]) == [("danger", "unlike", "odd")]
    assert list_row_flags([notice]) == [("notice", "first", "first use of domain")]


@pytest.mark.parametrize(
    ("check", "level", "shape"),
    [
        ("lookalike", "danger", "warn"),
        ("denied_before", "danger", "failed"),
        ("first_use", "notice", "first"),
        ("missing_evidence", "warning", "dash"),
        ("missing_evidence", "danger", "warn"),
        ("outlier", "notice", "dash"),
    ],
)
def test_each_result_has_a_shape(check: str, level: str, shape: str) -> None:
    assert find_shape(result(check, level)) == shape


def test_values_that_the_page_shows_anyway_are_not_repeated() -> None:
    compared = (Compared("rows", "Hello"), Compared("sent", "18,412"), Compared("rest", "x"))
    note = against("docs only", "arguments.body", compared=compared, sentence="18,412 in all.")
    shown = arrange_checks(CARD, [result(compared=compared), note])
    (noted,) = [noted for noted in shown.others if noted.piece.name == "body"]
    assert [line.label for line in noted.notes[0].compared] == ["rest"]
    assert shown.findings[0].compared == compared
    repeated = result(title="Hello, x and 18,412.", compared=compared)
    assert arrange_checks(CARD, [repeated]).findings[0].compared == ()


def test_missing_evidence_stands_before_the_facts_if_nothing_else_does() -> None:
    missing = result(
        "missing_evidence", "warning", title="Not provided: ticket.", sentence="Assume the worst."
    )
    alone = arrange_checks(CARD, [missing])
    assert [finding.result for finding in alone.findings] == [missing]
    assert alone.missing == ()
    both = arrange_checks(CARD, [result(), missing])
    assert len(both.findings) == 1
    assert [(item.text, item.detail) for item in both.missing] == [("ticket", "")]


def test_a_repository_is_missing_only_of_calls_that_move_refs() -> None:
    for tool, texts in (("mail.send", []), ("git.push", ["repository"])):
        shown = arrange_checks(replace(CARD, tool=tool), [])
        assert [item.text for item in shown.missing] == texts
