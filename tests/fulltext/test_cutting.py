"""Split text into words, parse terms and build snippets of matches. No database."""

import re
import unicodedata
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from investigation.fulltext import extract, snippets, tokenizer, word_search
from investigation.fulltext.snippets import Snippet, build_snippet
from investigation.fulltext.word_search import SearchTerm, has_all_terms, parse_terms
from pages.templatetags.search import snippet_line
from tests.fulltext.text_strategies import TEXTS
from tests.matrices import count_examples

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "git.push --force origin/main:feature_1",
            ["git", "push", "force", "origin", "main", "feature", "1"],
        ),
        (
            "https://Forge.example/pull/17?x=é",
            ["https", "forge", "example", "pull", "17", "x", "é"],
        ),
        ("ann.lee+x@Example.ORG", ["ann", "lee", "x", "example", "org"]),
        ("İstanbul ISPARTA ısı", ["istanbul", "isparta", "ısı"]),
        ("Straße STRASSE ﬁle ＧＩＴ ½", ["strasse", "strasse", "file", "git", "1", "2"]),
        ("cafe\u0301 CAFÉ", ["café", "café"]),
        ("pass\u200bword de\u00adploy \ufeffend", ["password", "deploy", "end"]),
        ("支払いAPI サーバー", ["支", "払", "い", "api", "サーバー"]),
        ("<script>alert('1')</script>\x00\x1b[31m", ["script", "alert", "1", "script", "31m"]),
        ("a" * 100, ["a" * 64]),
        (" _-/.:\u202e\u3164", []),
    ],
)
def test_words_are_runs_of_letters_and_digits(text: str, words: list[str]) -> None:
    assert tokenizer.tokenize(text) == words


@settings(max_examples=count_examples(40, 150))
@given(text=TEXTS)
def test_a_word_tokenizes_to_itself(text: str) -> None:
    assert tokenizer.distinct_words(text) == frozenset(tokenizer.tokenize(text))
    for word in tokenizer.tokenize(text):
        assert tokenizer.tokenize(word) == [word]
        assert 1 <= len(word) <= tokenizer.MAX_WORD_CHARACTERS
        assert word.isalnum()


def test_a_value_is_read_with_its_names_and_in_its_order() -> None:
    value: Any = {
        "command": "git push",
        "flags": ["-f", {"deep": [1, None, True]}],
        "none": None,
        "empty": {},
    }
    assert (
        extract.json_to_lines(value)
        == "command: git push\nflags: -f\ndeep: 1\ntrue\nnone: \nempty: "
    )


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("git push", [SearchTerm("git"), SearchTerm("push")]),
        ("git.pu*", [SearchTerm("git"), SearchTerm("pu", prefix=True)]),
        ("feature_*", [SearchTerm("feature")]),
        ("Main main MAIN", [SearchTerm("main")]),
        ("* push", [SearchTerm("push")]),
        ("支*", [SearchTerm("支")]),
        ("x" * 80 + "*", [SearchTerm("x" * 64, prefix=True)]),
    ],
)
def test_typed_text_becomes_terms(text: str, terms: list[SearchTerm]) -> None:
    assert parse_terms(text) == terms


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The text contains no word"),
        ("--- *", "The text contains no word"),
        ("\u200b", "The text contains no word"),
        ("push a*", "at least 2 letters"),
        (" ".join(map(str, range(33))), "at most 32"),
    ],
)
def test_text_without_a_word_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_terms(text)


@settings(max_examples=count_examples(40, 150))
@given(text=TEXTS, data=st.data())
def test_a_snippet_is_a_piece_of_the_text_with_its_matches_marked(
    text: str, data: st.DataObject
) -> None:
    words = tokenizer.tokenize(text)
    if not words:
        assert build_snippet(text, [SearchTerm("push")]) == []
        return
    word = data.draw(st.sampled_from(words))
    terms = [
        SearchTerm(word[:2], prefix=True)
        if data.draw(st.booleans()) and len(word) > 1
        else SearchTerm(word)
    ]
    parts = build_snippet(text, terms)
    assert "".join(part for part, _matched in parts).strip("…") in text
    assert sum(len(part) for part, _matched in parts) <= snippets.SNIPPET_CHARACTERS + 2
    (marked, *_others) = [part for part, matched in parts if matched]
    if len(marked) < snippets.SNIPPET_CHARACTERS // 2:  # a longer match may be cut
        assert has_all_terms(frozenset(tokenizer.tokenize(marked)), terms)


def test_a_match_far_into_the_text_is_shown_with_its_context() -> None:
    text = "x " * 5_000 + "before Deploy-web and deploy again " + "y " * 5_000
    parts = build_snippet(text, parse_terms("deploy"))
    assert [part for part, matched in parts if matched] == ["Deploy", "deploy"]
    assert parts[0] == parts[-1] == ("…", False)


def test_a_snippet_is_inert_on_a_page() -> None:
    text = "<b>x</b> \u202egpj.exe push <img src=x onerror=alert(1)> {{ 7 }}"
    page = snippet_line(Snippet("arguments", build_snippet(text, parse_terms("push"))))
    assert page.count("<mark>") == 1
    assert re.search(r"<mark><span[^>]*class=\"untrusted\"[^>]*>push</span></mark>", page)
    assert "<img" not in page
    assert "<b>" not in page
    assert "[U+202E]" in page


def test_every_accepted_query_is_valid_for_the_index() -> None:
    """No character of a word means anything to either database's query language."""
    for word in word_search.parse_terms("it's \"quoted\" & | ! ( ) <-> NEAR OR NOT 'x':* \\ % __"):
        assert word.word.isalnum()
        assert not any(
            unicodedata.category(character).startswith(("P", "S", "Z", "C"))
            for character in word.word
        )


def test_a_match_in_the_tool_name_does_not_hide_the_arguments() -> None:
    tool, arguments = ("tool", "forge.comment"), ("arguments", "body: Looks good\nnumber: 17")
    (only,) = snippets.snippets_of_texts(
        {UUID(int=1): [tool, arguments]}, parse_terms("comment")
    ).values()
    assert only.parts == [
        ("forge.", False),
        ("comment", True),
        ("\nbody: Looks good\nnumber: 17", False),
    ]
    (both,) = snippets.snippets_of_texts(
        {UUID(int=1): [tool, ("arguments", "a comment")]}, parse_terms("comment")
    ).values()
    assert (both.label, both.parts) == ("arguments", [("a ", False), ("comment", True)])
