"""How long redaction takes on hostile texts, and what it takes out of recorded data. Run by hand:

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
    """Texts, as a name and a piece to repeat, that begin a pattern as often as possible and never
    or always end it."""
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
    """How long a text of `size` characters takes: `piece` again and again, behind `start`."""
    text = (start + piece * (size // len(piece) + 1))[:size]
    began = time.process_time()
    redact_value({"arguments": text}, KEY)
    return time.process_time() - began


def slowest() -> list[tuple[float, str]]:
    """The slowest at 1 MB, of those that were slow at a twentieth of it."""
    small = sorted(hostile(), key=lambda one: took_s(one[0], one[1], BYTES // 20), reverse=True)[
        :30
    ]
    return sorted(
        ((took_s(one[0], one[1], BYTES), f"{one[0]!r} + {one[1][:60]!r} …") for one in small),
        reverse=True,
    )


def recorded(folder: Path) -> Iterator[Any]:
    """What agents would have sent: the members of the lists of each recorded document, and the rest
    of it."""
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
    held = [might_contain_secret(text) for _, text in items]
    filtered = time.process_time()
    kinds: Counter[str] = Counter()
    changed = 0
    for (item, _), holds in zip(items, held, strict=True):
        if holds:
            value, count = redact_value(item, KEY)
            changed += count > 0
            kinds.update(MARK.findall(json.dumps(value)) if count else [])
    ended = time.process_time()
    print(f"{len(items)} items, {sum(held)} past the prefilter, {changed} changed: {dict(kinds)}")  # noqa: T201
    each = 1_000_000 / len(items)
    print(  # noqa: T201
        f"prefilter {(filtered - began) * each:.1f} µs, redaction {(ended - filtered) * each:.1f} "
        "µs an item"
    )


def main() -> int:
    found = slowest()
    for seconds, name in found[:10]:
        print(f"{seconds:.3f} s  {name}")  # noqa: T201
    if len(sys.argv) > 1:
        false_alarms(Path(sys.argv[1]))
    return int(found[0][0] > LONGEST_S)


if __name__ == "__main__":
    raise SystemExit(main())
