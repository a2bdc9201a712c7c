"""Send random bytes to the strict reader; every other result than a value or a Problem is a fault.

Run for a while with `python -m tests.api.fuzz_strict --seconds 60`. The tests run a bounded number
of rounds.
"""

import argparse
import gzip
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.test import RequestFactory

from api.problems import Problem
from api.redaction.redact import might_contain_secret, redact_value
from api.strictjson.parser import ItemFault, Parsed, parse_batch, parse_object, read_body
from approvals.digest_json import to_canonical_json

LIMIT = 4 * 1024 * 1024
GOOD = b'{"id":"0192f3a4-7d1e","kind":"effect.planned","arguments":{"command":"ls -l","n":[1,2.5,-3e2]},"why":"\\u0000"}'

# Every row of the hostile corpus of the threat model, and the neighbours of each.
HOSTILE: dict[str, bytes] = {
    "nul in text": b'{"a":"x\\u0000y"}',
    "raw nul in text": b'{"a":"x\x00y"}',
    "raw newline in text": b'{"a":"x\ny"}',
    "lone high surrogate": b'{"a":"\\ud800"}',
    "lone low surrogate": b'{"a":"\\udc00x"}',
    "lone surrogate in a key": b'{"\\udfff":1}',
    "reversed surrogates": b'{"a":"\\ude00\\ud83d"}',
    "surrogate as utf-8": b'{"a":"\xed\xa0\x80"}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":[Infinity]}',
    "-Infinity": b'{"a":-Infinity}',
    "1e400": b'{"a":1e400}',
    "-1e400": b'{"a":-1e400}',
    "5,000 digits": b'{"a":' + b"9" * 5000 + b"}",
    "65 digits": b'{"a":' + b"9" * 65 + b"}",
    "5,000 digits behind the point": b'{"a":0.' + b"1" * 5000 + b"}",
    "5,000 digits of exponent": b'{"a":1e' + b"1" * 5000 + b"}",
    "5,000 nested lists": b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "100,000 nested lists": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 opened lists": b"[" * 100_000,
    "5,000 nested objects": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "33 levels": b'{"a":' + b"[" * 32 + b"]" * 32 + b"}",
    "duplicate key": b'{"a":1,"a":2}',
    "duplicate key, escaped": b'{"a":1,"\\u0061":2}',
    "duplicate key, deep": b'{"a":[{"b":{"c":1,"d":2,"c":1}}]}',
    "duplicate key and a colon made up for it": b'{"a":1,"a":2,"b":"\\u003a"}',
    "utf-16": '{"a":1}'.encode("utf-16"),
    "utf-16 without mark": '{"a":1}'.encode("utf-16-le"),
    "utf-16 big endian": '{"a":1}'.encode("utf-16-be"),
    "utf-32": '{"a":1}'.encode("utf-32"),
    "byte order mark": b'\xef\xbb\xbf{"a":1}',
    "invalid utf-8": b'{"a":"\xff\xfe"}',
    "overlong utf-8": b'{"a":"\xc0\x80"}',
    "invalid utf-8 in a key": b'{"\xff":1}',
    "bidi": '{"a":"\u202e\u2066x"}'.encode(),
    "2 MB string": b'{"a":"' + b"x" * 2_000_000 + b'"}',
    "string that never ends": b'{"a":"' + b'\\"' * 100_000,
    "many quotes": b'{"a":' + b'"' * 100_001,
    "empty": b"",
    "blanks": b" \n\t ",
    "not an object": b"[1]",
    "a number": b"7",
    "trailing data": b'{"a":1} x',
    "two documents": b'{"a":1}{"a":1}',
    "trailing comma": b'{"a":1,}',
    "single quotes": b"{'a':1}",
    "comment": b'{"a":1/**/}',
    "leading zero": b'{"a":01}',
    "plus": b'{"a":+1}',
    "bad escape": b'{"a":"\\x41"}',
    "short escape": b'{"a":"\\u00"}',
    "cut short": b'{"a":"b',
    "a million commas": b"[" + b"1," * 1_000_000 + b"1]",
}

_FRAGMENTS = (
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\n",
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
    ),
    *(
        b"\\ud800",
        b"\\udc00",
        b"\\u0000",
        b"\\u003a",
        b"NaN",
        b"1e400",
        b"-0",
        b"9" * 70,
        b"1e-400",
        b"0.1",
        b'"a":1,',
    ),
    *(
        '"\U0001f600":1,'.encode(),
        '"\uffff":1,'.encode(),
        b"[" * 40,
        b"]" * 40,
        b"[" * 1200,
        b'{"a":',
        b"null",
        b"Infinity",
    ),
    *(
        b"password=hunter2",
        b"ghp_" + b"a1" * 18,
        b"-----BEGIN PRIVATE " + b"KEY-----",
        b"://u:p@",
        b'"token":"abc12345"',
    ),
)


def check(raw: bytes) -> Iterator[str]:
    """Read `raw` with every reader and yield the results. Every exception but Problem is a failure."""
    try:
        parsed = parse_object(raw)
    except Problem as problem:
        yield _answered(problem, 415, 422)
    else:
        yield "read"
        _check_parsed(parsed)
    for ndjson in (False, True):
        try:
            results = parse_batch(raw, ndjson=ndjson)
        except Problem as problem:
            yield _answered(problem, 400, 413, 415, 422)
        else:
            for index, result in enumerate(results):
                if isinstance(result, ItemFault):
                    assert result.index == index
                    yield result.code
                else:
                    yield "item"
    ways: list[tuple[bytes, Any]] = [
        (raw, {}),
        (gzip.compress(raw, 1), {"HTTP_CONTENT_ENCODING": "gzip"}),
    ]
    for body, headers in ways:
        request = RequestFactory().generic("POST", "/", body, "application/json", **headers)
        try:
            assert read_body(request, limit=LIMIT) == raw
            yield "body"
        except Problem as problem:
            yield _answered(problem, 411, 413, 415, 422)


def _answered(problem: Problem, *statuses: int) -> str:
    if problem.status not in statuses:
        raise problem
    json.dumps(problem.as_dict(), ensure_ascii=False).encode()
    return problem.code


def _check_parsed(parsed: Parsed) -> None:
    assert as_doubles(json.loads(parsed.text)) == as_doubles(parsed.value)
    # Canonical text is its own canonical text, and equals that of an independent writer.
    assert parse_object(parsed.text.encode()).text == parsed.text
    assert to_canonical_json(parsed.value) == parsed.text.encode()
    redacted, count = redact_value(parsed.value, b"key")
    assert redact_value(redacted, b"key")[1] == 0
    assert count == 0 or might_contain_secret(parsed.text)


def as_doubles(value: Any) -> Any:
    """The value with every integer as a double: RFC 8785 writes 2.009550697520047e16 as
    20095506975200470."""
    if isinstance(value, dict):
        return {key: as_doubles(child) for key, child in value.items()}
    if isinstance(value, list):
        return [as_doubles(child) for child in value]
    return float(value) if type(value) is int else value


def mutants(seed: int) -> Iterator[bytes]:
    """Yield broken bodies without end, the same for the same seed."""
    chance = random.Random(seed)
    good = [GOOD, b"[" + b",".join([GOOD] * 3) + b"]", b"\n".join([GOOD] * 3)]
    corpus = [raw for raw in HOSTILE.values() if 0 < len(raw) < 20_000]
    while True:
        raw = bytearray(chance.choice(good if chance.random() < 0.6 else corpus))
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            place = chance.randint(0, len(raw))
            match chance.randint(0, 4):
                case 0:
                    raw[place:place] = chance.choice(_FRAGMENTS)
                case 1:
                    del raw[place : place + chance.randint(1, 9)]
                case 2:
                    raw[place : place + 1] = bytes([chance.randint(0, 255)])
                case 3:
                    start = chance.randint(0, len(raw))
                    raw[place:place] = raw[start : start + chance.randint(1, 60)]
                case _:
                    raw[place:place] = chance.choice(corpus)[:200]
        # Most mutants are valid UTF-8, because otherwise the encoding alone refuses nearly all.
        yield bytes(raw) if chance.random() < 0.2 else raw.decode(errors="ignore").encode()


def main(arguments: list[str]) -> int:
    """Run until the time is up or a fault appears; print the bytes of a fault and fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randint(0, 2**32))
    options = parser.parse_args(arguments)
    answers: Counter[str] = Counter()
    rounds = 0
    end = time.monotonic() + options.seconds
    for raw in mutants(options.seed):
        try:
            answers.update(check(raw))
        except BaseException:
            sys.stderr.write(f"seed {options.seed}, round {rounds}: {raw!r}\n")
            raise
        rounds += 1
        if time.monotonic() > end:
            break
    sys.stdout.write(
        f"seed {options.seed}: {rounds} bodies, nothing found\n{json.dumps(answers, indent=1)}\n"
    )
    return 0


if __name__ == "__main__":
    from django.conf import settings

    settings.configure()
    raise SystemExit(main(sys.argv[1:]))
