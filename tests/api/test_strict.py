"""The strict reader returns exact JSON values or refuses with a code and a pointer."""

import itertools
import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from api.problems import Problem
from api.strictjson.canonical_json import to_canonical_text
from api.strictjson.parser import ItemFault, Parsed, parse_batch, parse_object, to_intent_text
from approvals.digest_json import to_canonical_json
from db import long_numbers
from tests.api import fuzz_strict
from tests.api.fuzz_strict import HOSTILE
from tests.matrices import count_examples

SAFE = 2**53 - 1

safe_integers = st.integers(-SAFE, SAFE) | st.sampled_from([SAFE, -SAFE, 0, 2**31, -(2**31)])
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [
        -0.0,
        1.0,
        1e16,
        1e20,
        1e21,
        1.5e20,
        123456789012345680000.0,
        1e-6,
        1e-7,
        1.5e-5,
        5e-324,
        1.7976931348623157e308,
    ]
)
texts = st.text() | st.sampled_from(
    ["\x00", "\u2028", "\x7f", "a:b", '"', "\\", "😀", "\uffff", "\ue000", "é"]
)
keys = texts | st.sampled_from(["a", "b", "\U00010000", "\ue000", "\uffff", "a😀", "a\uffff"])


def values(numbers: st.SearchStrategy[int | float]) -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | numbers | texts
    return st.recursive(
        leaves,
        lambda c: st.lists(c, max_size=4) | st.dictionaries(keys, c, max_size=4),
        max_leaves=12,
    )


objects = st.dictionaries(keys, values(safe_integers | floats), max_size=5)
long_integers = st.integers(-(10**63), 10**63)
evidence = st.dictionaries(keys, values(long_integers), max_size=5)
spellings = st.sampled_from(
    [
        {"separators": (",", ":"), "ensure_ascii": False},
        {"separators": (",", ":"), "ensure_ascii": True},
        {"ensure_ascii": True},
        {"indent": 1, "ensure_ascii": False},
        {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False},
    ]
)


def refusal(raw: bytes, **limits: int) -> Problem:
    with pytest.raises(Problem) as caught:
        parse_object(raw, **limits)
    return caught.value


@settings(max_examples=count_examples(100, 500), deadline=None)
@given(objects, spellings)
def test_canonical_text_is_what_rfc8785_writes_and_the_value_what_json_reads(
    value: dict[str, Any], spelling: Any
) -> None:
    raw = json.dumps(value, **spelling).encode()
    parsed = parse_object(raw)
    assert parsed.value == json.loads(raw)
    assert repr(parsed.value) == repr(json.loads(raw))
    assert parsed.text.encode() == rfc8785.dumps(value)
    assert parse_object(parsed.text.encode()).text == parsed.text
    assert to_canonical_text(value).encode() == rfc8785.dumps(value)
    assert to_intent_text("bash", value) == rfc8785.dumps(["bash", value])


@settings(max_examples=count_examples(50, 200), deadline=None)
@given(evidence, spellings)
def test_evidence_keeps_long_integers_digit_for_digit(value: dict[str, Any], spelling: Any) -> None:
    parsed = parse_object(json.dumps(value, **spelling).encode())
    assert parsed.value == value
    assert json.loads(parsed.text) == value
    for number in (number for number in value.values() if type(number) is int):
        assert f":{number}" in parsed.text
    assert to_canonical_text(value) == parsed.text
    assert (
        to_canonical_json(value).decode() == parsed.text
    )  # by the other writer, which the pages use


@settings(max_examples=count_examples(100, 500), deadline=None)
@given(floats)
def test_numbers_are_written_as_ecmascript_writes_them(number: float) -> None:
    assert to_canonical_text(number).encode() == rfc8785.dumps(number)
    assert float(to_canonical_text(number)) == number


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-7, "1e-7"),
        (1.5e-6, "0.0000015"),
        (333333333.33333329, "333333333.3333333"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (-1.5e300, "-1.5e+300"),
    ],
)
def test_numbers_of_the_rfc(number: float, written: str) -> None:
    assert parse_object(json.dumps({"n": number}).encode()).text == f'{{"n":{written}}}'


def test_keys_are_sorted_by_utf16_units() -> None:
    raw = '{"\uffff":1,"\U0001f600":{"\ue000":2,"\U00010000":3},"a":4}'.encode()
    assert parse_object(raw).text == '{"a":4,"\U0001f600":{"\U00010000":3,"\ue000":2},"\uffff":1}'


def test_nul_in_free_text_is_kept_exactly() -> None:
    parsed = parse_object(b'{"a":"x\\u0000y"}')
    assert parsed.value == {"a": "x\x00y"}
    assert parsed.text == '{"a":"x\\u0000y"}'


CODES: dict[str, tuple[str, str | None]] = {
    "raw nul in text": ("json_syntax", None),
    "raw newline in text": ("json_syntax", None),
    "lone high surrogate": ("lone_surrogate", "/a"),
    "lone low surrogate": ("lone_surrogate", "/a"),
    "lone surrogate in a key": ("lone_surrogate", ""),
    "reversed surrogates": ("lone_surrogate", "/a"),
    "surrogate as utf-8": ("invalid_utf8", None),
    "NaN": ("number_not_finite", "/a"),
    "Infinity": ("number_not_finite", "/a/0"),
    "-Infinity": ("number_not_finite", "/a"),
    "1e400": ("number_not_finite", "/a"),
    "-1e400": ("number_not_finite", "/a"),
    "5,000 digits": ("number_too_long", "/a"),
    "65 digits": ("number_too_long", "/a"),
    "5,000 digits behind the point": ("number_too_long", "/a"),
    "5,000 digits of exponent": ("number_too_long", "/a"),
    "5,000 nested lists": ("too_deep", None),
    "100,000 nested lists": ("too_deep", None),
    "100,000 opened lists": ("too_deep", None),
    "5,000 nested objects": ("too_deep", None),
    "33 levels": ("too_deep", "/a" + "/0" * 31),
    "duplicate key": ("duplicate_key", "/a"),
    "duplicate key, escaped": ("duplicate_key", "/a"),
    "duplicate key, deep": ("duplicate_key", "/a/0/b/c"),
    "duplicate key and a colon made up for it": ("duplicate_key", "/a"),
    "invalid utf-8": ("invalid_utf8", None),
    "overlong utf-8": ("invalid_utf8", None),
    "invalid utf-8 in a key": ("invalid_utf8", None),
    "not an object": ("not_an_object", ""),
    "a number": ("not_an_object", ""),
    "a million commas": ("not_an_object", ""),
}
CODES |= {
    name: ("unsupported_charset", None)
    for name in HOSTILE
    if name.startswith(("utf-", "byte order"))
}

SYNTAX = [
    "empty",
    "blanks",
    "trailing data",
    "two documents",
    "trailing comma",
    "single quotes",
    "comment",
    "cut short",
]
SYNTAX += [
    "leading zero",
    "plus",
    "bad escape",
    "short escape",
    "string that never ends",
    "many quotes",
]
READ = {"nul in text", "bidi", "2 MB string"}


@pytest.mark.parametrize("name", HOSTILE)
def test_every_hostile_body_has_one_answer(name: str) -> None:
    if name in READ:
        assert parse_object(HOSTILE[name]).value == json.loads(HOSTILE[name])
        return
    code, pointer = ("json_syntax", None) if name in SYNTAX else CODES[name]
    problem = refusal(HOSTILE[name])
    assert (problem.code, problem.pointer) == (code, pointer)
    assert problem.status == (415 if code == "unsupported_charset" else 422)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"null", "Expected a JSON object, got null. Send a JSON object."),
        (b"[1]", "Expected a JSON object, got an array. Send a JSON object."),
        (b'"x"', "Expected a JSON object, got a string. Send a JSON object."),
        (b"true", "Expected a JSON object, got a boolean. Send a JSON object."),
        (b"1.5", "Expected a JSON object, got a number. Send a JSON object."),
        (
            b'{"a": "\x01"}',
            "The text is not one JSON document: Invalid control character at line 1 column 8. Fix "
            "the syntax.",
        ),
    ],
)
def test_sentences_name_json_types_and_not_those_of_python(raw: bytes, sentence: str) -> None:
    assert refusal(raw).detail == sentence


def test_integers_beyond_2_to_53_are_kept_as_they_are() -> None:
    for number in (SAFE, -SAFE, 2**53, -(2**53), 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**63):
        raw = json.dumps({"a": {"b~/": [1, number]}}, separators=(",", ":")).encode()
        parsed = parse_object(raw)
        assert parsed.value["a"]["b~/"][1] == number
        assert parsed.text.encode() == raw
        assert long_numbers.parse_json(parsed.text) == parsed.value
        assert long_numbers.to_json_bytes(parsed.value) == raw
    assert refusal(b'{"a":' + b"1" * 65 + b"}").code == "number_too_long"


def test_depth_counts_containers_and_not_brackets_in_text() -> None:
    assert parse_object(b'{"a":' + b"[" * 31 + b"]" * 31 + b"}").value
    assert parse_object(json.dumps({"a": "[{" * 5000, "b": '\\"[' * 500}).encode()).value
    assert parse_object(json.dumps({"a": [[index] for index in range(2000)]}).encode()).value
    assert refusal(b'{"a":[[1]]}', max_depth=2).code == "too_deep"


def test_pointers_stay_short() -> None:
    pointer = refusal(json.dumps({"a": {"k" * 500: float("nan")}}).encode()).pointer
    assert pointer == "/a"


def _batch(raw: bytes, *, ndjson: bool = False, **limits: int) -> list[Any]:
    return [
        (result.code, result.id, result.pointer) if isinstance(result, ItemFault) else result.value
        for result in parse_batch(raw, ndjson=ndjson, **limits)
    ]


BAD_ITEMS = [
    (b'{"id":"b","x":1,"x":2}', ("duplicate_key", "b", "/x")),
    (b'{"id":"b","x":"\\ud800"}', ("lone_surrogate", "b", "/x")),
    (b'{"id":"b","x":NaN}', ("number_not_finite", "b", "/x")),
    (b'{"id":"b","x":1e400}', ("number_not_finite", "b", "/x")),
    (b'{"id":"b","x":' + b"9" * 5000 + b"}", ("number_too_long", "b", "/x")),
    (b'{"id":"b","x":' + b"[" * 40 + b"]" * 40 + b"}", ("too_deep", "b", "/x" + "/0" * 31)),
    (b'{"id":"b","x":' + b"[" * 5000 + b"]" * 5000 + b"}", ("too_deep", None, None)),
    (b"7", ("not_an_object", None, "")),
    (b'["id"]', ("not_an_object", None, "")),
    (b'{"id":"b","id":"c"}', ("duplicate_key", None, "/id")),
    (b'{"id":7,"x":NaN}', ("number_not_finite", None, "/x")),
]


@pytest.mark.parametrize(("bad", "fault"), BAD_ITEMS)
def test_one_bad_item_never_sinks_the_others(bad: bytes, fault: Any) -> None:
    for ndjson, raw in (
        (False, b'[{"id":"a"}, ' + bad + b' ,{"id":"c"}]'),
        (True, b'{"id":"a"}\n' + bad + b'\r\n\n{"id":"c"}\n'),
    ):
        assert _batch(raw, ndjson=ndjson) == [{"id": "a"}, fault, {"id": "c"}]


def test_an_item_over_the_limit_is_too_large_and_named() -> None:
    raw = b'[{"id":"a","x":"' + b"x" * 300_000 + b'"},{"id":"b"}]'
    first, second = parse_batch(raw, ndjson=False)
    assert isinstance(first, ItemFault)
    assert (first.status, first.code, first.id, first.index) == (
        "too_large",
        "item_too_large",
        "a",
        0,
    )
    assert isinstance(second, Parsed)
    exact = b'{"x":"' + b"x" * (262_144 - 8) + b'"}'
    assert isinstance(parse_batch(exact, ndjson=True)[0], Parsed)


@pytest.mark.parametrize(
    "raw",
    [b"", b" ", b"{}", b"7", b"[", b"[{}", b"[{},]", b"[,{}]", b"[{}{}]", b"[{}]x", b'[{"a":01}]'],
)
def test_an_envelope_that_cannot_be_read_is_400(raw: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse_batch(raw, ndjson=False)
    assert (caught.value.status, caught.value.code) == (400, "envelope_unreadable")


def test_a_syntax_error_in_a_line_is_that_line_s_own() -> None:
    assert _batch(b'{"id":"a"}\n{"id":\n{"id":"c"}', ndjson=True) == [
        {"id": "a"},
        ("json_syntax", None, None),
        {"id": "c"},
    ]
    assert _batch(b"\n \n", ndjson=True) == []
    assert _batch(b"[ ]") == []


@pytest.mark.parametrize("item", [b"{}", b'{"a":NaN}', b"1"])
def test_more_than_the_allowed_items_are_413(item: bytes) -> None:
    assert len(_batch(b"[" + b",".join([item] * 1000) + b"]")) == 1000
    for raw, ndjson in (
        (b"[" + b",".join([item] * 1001) + b"]", False),
        (b"\n".join([item] * 1001), True),
    ):
        with pytest.raises(Problem) as caught:
            parse_batch(raw, ndjson=ndjson)
        assert (caught.value.status, caught.value.code) == (413, "too_many_items")
        assert "1000" in caught.value.detail


@settings(max_examples=count_examples(30, 100), deadline=None)
@given(st.lists(evidence, max_size=4), spellings, st.booleans())
def test_a_batch_is_parsed_like_its_single_items(
    items: list[dict[str, Any]], spelling: Any, ndjson: bool
) -> None:
    written = [json.dumps(item, **{**spelling, "indent": None}).encode() for item in items]
    raw = b"\n".join(written) if ndjson else b"[" + b" , ".join(written) + b"]"
    assert parse_batch(raw, ndjson=ndjson) == [parse_object(item) for item in written]


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, "\ud800", {"\ud800": 1}, {1: 2}, object(), {"a": {1, 2}}]
)
def test_a_value_without_a_json_form_has_no_intent(bad: Any) -> None:
    with pytest.raises(Problem) as caught:
        to_intent_text("bash", bad)
    assert caught.value.status == 422


def test_a_value_nested_without_end_has_no_intent() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(Problem) as caught:
        to_intent_text("bash", value)
    assert caught.value.code == "too_deep"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies_never_raise_anything_but_problems(name: str) -> None:
    list(fuzz_strict.check(HOSTILE[name]))
    list(fuzz_strict.check(b"[" + HOSTILE[name] + b"]"))


def test_broken_bodies_never_raise_anything_but_problems() -> None:
    for raw in itertools.islice(fuzz_strict.mutants(seed=1), 1500):
        list(fuzz_strict.check(raw))


@settings(max_examples=count_examples(60, 300), deadline=None)
@given(
    st.binary(max_size=200)
    | st.text(alphabet='{}[]",:\\u0123456789abcdefNnIi+-.eE tru\n').map(str.encode)
)
def test_arbitrary_bytes_never_raise_anything_but_problems(raw: bytes) -> None:
    list(fuzz_strict.check(raw))
