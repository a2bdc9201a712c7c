"""What a word is, what is asked for, and what is shown of a match. No database."""

import re
import unicodedata
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inquiry.templatetags.found import snippet_line
from inquiry.words import cutting, matching, reading, snippets
from inquiry.words.matching import Term, holds, terms
from inquiry.words.snippets import Snippet, snippet
from tests.words.wild import TEXTS

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("git.push --force origin/main:feature_1", ["git", "push", "force", "origin", "main", "feature", "1"]),
        ("https://Forge.example/pull/17?x=é", ["https", "forge", "example", "pull", "17", "x", "é"]),
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
    assert cutting.cut(text) == words


@settings(max_examples=150)
@given(text=TEXTS)
def test_a_word_is_itself_when_it_is_cut_again(text: str) -> None:
    assert cutting.distinct(text) == frozenset(cutting.cut(text))
    for word in cutting.cut(text):
        assert cutting.cut(word) == [word]
        assert 1 <= len(word) <= cutting.LONGEST
        assert word.isalnum()


def test_a_value_is_read_with_its_names_and_in_its_order() -> None:
    value: Any = {"command": "git push", "flags": ["-f", {"deep": [1, None, True]}], "none": None, "empty": {}}
    assert reading.lines(value) == "command: git push\nflags: -f\ndeep: 1\ntrue\nnone: \nempty: "


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("git push", [Term("git"), Term("push")]),
        ("git.pu*", [Term("git"), Term("pu", prefix=True)]),
        ("feature_*", [Term("feature")]),
        ("Main main MAIN", [Term("main")]),
        ("* push", [Term("push")]),
        ("支*", [Term("支")]),
        ("x" * 80 + "*", [Term("x" * 64, prefix=True)]),
    ],
)
def test_what_is_typed_becomes_terms(text: str, asked: list[Term]) -> None:
    assert terms(text) == asked


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
def test_what_names_no_word_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        terms(text)


@settings(max_examples=150)
@given(text=TEXTS, data=st.data())
def test_a_snippet_is_a_piece_of_the_text_and_marks_what_was_asked_for(text: str, data: st.DataObject) -> None:
    words = cutting.cut(text)
    if not words:
        assert snippet(text, [Term("push")]) == []
        return
    word = data.draw(st.sampled_from(words))
    asked = [Term(word[:2], prefix=True) if data.draw(st.booleans()) and len(word) > 1 else Term(word)]
    parts = snippet(text, asked)
    assert "".join(part for part, _matched in parts).strip("…") in text
    assert sum(len(part) for part, _matched in parts) <= snippets.SHOWN + 2
    (marked, *_others) = [part for part, matched in parts if matched]
    if len(marked) < snippets.SHOWN // 2:  # else its end may be cut off
        assert holds(frozenset(cutting.cut(marked)), asked)


def test_what_stands_far_behind_is_shown_with_its_surroundings() -> None:
    text = "x " * 5_000 + "before Deploy-web and deploy again " + "y " * 5_000
    parts = snippet(text, terms("deploy"))
    assert [part for part, matched in parts if matched] == ["Deploy", "deploy"]
    assert parts[0] == parts[-1] == ("…", False)


def test_a_snippet_is_inert_on_a_page() -> None:
    text = "<b>x</b> \u202egpj.exe push <img src=x onerror=alert(1)> {{ 7 }}"
    page = snippet_line(Snippet("arguments", snippet(text, terms("push"))))
    assert page.count("<mark>") == 1
    assert re.search(r"<mark><span[^>]*class=\"untrusted\"[^>]*>push</span></mark>", page)
    assert "<img" not in page
    assert "<b>" not in page
    assert "[U+202E]" in page


def test_what_may_be_asked_is_what_the_index_takes() -> None:
    """No character of a word means anything to either database's query language."""
    for word in matching.terms("it's \"quoted\" & | ! ( ) <-> NEAR OR NOT 'x':* \\ % __"):
        assert word.word.isalnum()
        assert not any(unicodedata.category(character).startswith(("P", "S", "Z", "C")) for character in word.word)


def test_a_word_that_only_the_tools_name_has_does_not_hide_what_was_done() -> None:
    tool, said = ("tool", "forge.comment"), ("arguments", "body: Looks good\nnumber: 17")
    (only,) = snippets.of_texts({UUID(int=1): [tool, said]}, terms("comment")).values()
    assert only.parts == [("forge.", False), ("comment", True), ("\nbody: Looks good\nnumber: 17", False)]
    (both,) = snippets.of_texts({UUID(int=1): [tool, ("arguments", "a comment")]}, terms("comment")).values()
    assert (both.label, both.parts) == ("arguments", [("a ", False), ("comment", True)])
