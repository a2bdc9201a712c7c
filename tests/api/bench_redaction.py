"""Measure redaction of hostile texts and of recorded data. Run by hand:

    .venv/bin/python -m tests.api.bench_redaction [FOLDER of *.jsonl.gz]

Each hostile text has 1 MB. The exit code is 1 when one of them takes longer than LONGEST_S. Of the
recorded data it prints how many items lost something, by kind, and how long the prefilter and the
redaction took for each item.
"""

import gzip
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.redaction.patterns import KINDS
from api.redaction.redact import might_contain_secret, redact_value
from api.strictjson.canonical_json import to_canonical_text
from tests.api.test_redaction import FURTHER, KEY, SECRETS

LONGEST_S = 0.5
BYTES = 1_000_000
MARK = re.compile(r"\[redacted:(\w+):[0-9a-f]{12}\]")


def hostile() -> Iterator[tuple[str, str]]:
    """Yield texts as a start and a repeated piece that begin a pattern often and never or always
    end it."""
    pieces = {hint for kind in KINDS for hint in kind.hints} | {
        text for text, _ in SECRETS.values()
    }
    pieces |= {text for _, text, _ in FURTHER}
    pieces |= {text[: len(text) * share // 4] for _, text, _ in FURTHER for share in (1, 2, 3)} - {
        ""
    }
    for piece in sorted(pieces):
        for joint in ("", "-", " ", "a" * 40, "A1-" * 20):
            yield "", piece + joint
    for start in (
        "://",
        "curl -u ",
        "password=",
        "Cookie: ",
        "-----BEGIN PRIVATE KEY-----",
        "mysql -p",
        "machine ",
    ):
        for filling in ("a", "a1", ":", "/", "\\", " ", "=", "-", "PASS", "eyJ"):
            yield start, filling


def took_s(start: str, piece: str, size: int) -> float:
    """Return the time for a text of `size` characters: `start`, then `piece` repeated."""
    text = (start + piece * (size // len(piece) + 1))[:size]
    began = time.process_time()
    redact_value({"arguments": text}, KEY)
    return time.process_time() - began


def slowest() -> list[tuple[float, str]]:
    """Return the slowest texts at 1 MB, of those that are slow at 5 % of 1 MB."""
    small = sorted(hostile(), key=lambda case: took_s(case[0], case[1], BYTES // 20), reverse=True)[
        :30
    ]
    return sorted(
        ((took_s(case[0], case[1], BYTES), f"{case[0]!r} + {case[1][:60]!r} …") for case in small),
        reverse=True,
    )


def recorded(folder: Path) -> Iterator[Any]:
    """Yield items as agents send them: list members of each recorded document, and its remainder."""
    for file in sorted(folder.rglob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).decode(errors="replace").splitlines():
            document = json.loads(line)
            document = document.get("raw", document) if isinstance(document, dict) else document
            if not isinstance(document, dict):
                yield document
                continue
            for value in document.values():
                yield from value if isinstance(value, list) else ()
            yield {name: value for name, value in document.items() if not isinstance(value, list)}


def false_alarms(folder: Path) -> None:
    items = [(item, to_canonical_text(item)) for item in recorded(folder)]
    began = time.process_time()
    candidates = [might_contain_secret(text) for _, text in items]
    filtered = time.process_time()
    kinds: Counter[str] = Counter()
    changed = 0
    for (item, _), is_candidate in zip(items, candidates, strict=True):
        if is_candidate:
            value, count = redact_value(item, KEY)
            changed += count > 0
            kinds.update(MARK.findall(json.dumps(value)) if count else [])
    ended = time.process_time()
    print(  # noqa: T201
        f"{len(items)} items, {sum(candidates)} past the prefilter, {changed} changed: {dict(kinds)}"
    )
    each = 1_000_000 / len(items)
    print(  # noqa: T201
        f"prefilter {(filtered - began) * each:.1f} µs, redaction {(ended - filtered) * each:.1f} "
        "µs an item"
    )


def main() -> int:
    slowest_cases = slowest()
    for seconds, name in slowest_cases[:10]:
        print(f"{seconds:.3f} s  {name}")  # noqa: T201
    if len(sys.argv) > 1:
        false_alarms(Path(sys.argv[1]))
    return int(slowest_cases[0][0] > LONGEST_S)


if __name__ == "__main__":
    raise SystemExit(main())
