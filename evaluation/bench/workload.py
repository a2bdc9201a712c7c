"""The workload of the benchmark's clients: batches of evidence, about 590 bytes an item.

Two workloads. In `mixed` all facts of an effect are in one batch, some effects fail and are
retried, and every seventh item changes no state. In `split` plan, dispatch and answer of each
effect are in three successive batches, so that two of three facts update an existing row. One item
in 25 contains a non-ASCII word, another a fractional number, and one in 50 a word that triggers the
search for secrets.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

ITEMS: Final = 500  # of a batch
BYTES: Final = 590  # of an item, about
SESSIONS: Final = 8  # of one client
TOOLS: Final = (
    "bash",
    "git.push",
    "http.request",
    "file.edit",
    "search",
    "github.create_pull_request",
)
REPOSITORY_TOOLS: Final = frozenset({"git.push", "github.create_pull_request"})
START_US: Final = 1_790_000_000_000_000
WORKLOADS: Final = ("mixed", "split")

_TEXT: Final = (
    "run the tests again after changing the parser so that an empty line ends a block and the last "
    "one needs none "
    "git status shows four files modified in the working tree nothing added to commit build "
    "finished warnings none "
    "open src/reader/lines.py and look for the place where offsets are counted from zero instead "
    "of one then fix it "
    "FAILED tests/test_lines.py::test_last_line AssertionError expected 14 got 13 see the log for "
    "the whole trace"
)
_WORDS: Final = _TEXT.split()


@dataclass(frozen=True)
class Batch:
    """A body for POST /events and its number of items."""

    body: bytes
    items: int


def _pick(number: int, count: int) -> int:
    """Return a repeatable pseudo-random number below `count`: the mixing step of a hash."""
    number = (number ^ (number >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    number = (number ^ (number >> 12)) * 0x297A2D39 & 0xFFFFFFFF
    return (number ^ (number >> 15)) % count


def make_text(seed: int, size: int) -> str:
    """Return text of about `size` bytes, the same for the same seed."""
    words: list[str] = []
    length = 0
    while length < size:
        word = _WORDS[_pick(seed * 7919 + len(words), len(_WORDS))]
        words.append(word)
        length += len(word) + 1
    if seed % 25 == 3:
        words[len(words) // 2] = "prüfen"
    if seed % 50 == 7:
        words[len(words) // 3] = "password"
    return " ".join(words)[: size + 8]


class Writer:
    """Writes the items of one client. `name` makes its ids, keys and sessions unique.

    With `rich`, plans also have tasks and targets, for pages and searches.
    """

    def __init__(self, name: str, *, sessions: int = SESSIONS, rich: bool = False) -> None:
        self.name, self.sessions, self.rich = name, sessions, rich
        self.items = 0
        self.effects = 0

    def _item(
        self, kind: str, effect: int, fields: dict[str, Any], filler: tuple[str, ...]
    ) -> bytes:
        """Return an item; the text at `filler` (a path in `fields`) fills it to the usual size."""
        self.items += 1
        number = self.items
        item: dict[str, Any] = {
            "id": f"{self.name}-{number}",
            "kind": kind,
            "occurred_us": START_US + number * 1_000,
            "producer_seq": number,
            "session": f"bench-{self.name}-{effect % self.sessions}",
            **fields,
        }
        place: dict[str, Any] = item
        for step in filler[:-1]:
            place = place.setdefault(step, {})
        if number % 25 == 11:
            place["seconds"] = number / 7
        length = len(json.dumps(item, separators=(",", ":")))
        place[filler[-1]] = make_text(number, max(16, BYTES - length - len(filler[-1]) - 6))
        return json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()

    def plan(self, effect: int) -> bytes:
        """Return a plan of effect number `effect`."""
        tool = TOOLS[_pick(effect, len(TOOLS))]
        fields: dict[str, Any] = {
            "effect_key": f"call-{effect}",
            "call_id": f"toolu_{effect:012d}",
            "turn": f"turn-{effect // 4}",
            "tool": tool,
            "arguments": {"path": f"src/part_{effect % 97}.py", "number": effect},
        }
        if self.rich:
            fields["task"] = f"task-{effect // self.sessions % 10}"
            if tool in REPOSITORY_TOOLS:
                ref = "refs/heads/main" if effect % 3 == 0 else f"refs/heads/fix-{effect % 50}"
                fields["target"] = {"repository": f"acme/shop-{effect % 20}", "ref": ref}
        return self._item("effect.planned", effect, fields, ("arguments", "command"))

    def dispatch(self, effect: int, attempt: int = 1) -> bytes:
        """Return the dispatch of an attempt."""
        fields = {
            "effect_key": f"call-{effect}",
            "attempt": attempt,
            "process": f"worker-{self.name}",
        }
        return self._item("effect.dispatched", effect, fields, ("request", "text"))

    def answer(self, effect: int, attempt: int = 1, *, fails: bool = False) -> bytes:
        """Return the answer of an attempt: an acknowledgement, or a clean rejection."""
        fields: dict[str, Any] = {"effect_key": f"call-{effect}", "attempt": attempt}
        if fails:
            return self._item(
                "effect.failed", effect, {**fields, "reason": "rejected"}, ("detail", "text")
            )
        fields["outcome"] = "error" if effect % 16 == 5 else "ok"
        if effect % 4 == 1:
            fields["external_reference"] = f"https://forge.example/pulls/{self.name}/{effect}"
        return self._item("effect.acknowledged", effect, fields, ("result", "output"))

    def note(self) -> bytes:
        """Return a fact that changes no state."""
        return self._item("model.message", self.items, {"role": "assistant"}, ("text",))

    def mixed(self, batches: int) -> list[Batch]:
        """Return `batches` batches, each with all facts of its effects."""
        made = []
        for _ in range(batches):
            items: list[bytes] = []
            while len(items) < ITEMS:
                if len(items) % 7 == 6 or len(items) > ITEMS - 5:
                    items.append(self.note())
                    continue
                effect = self.effects
                self.effects += 1
                items += [self.plan(effect), self.dispatch(effect)]
                if effect % 20 == 9:
                    items += [
                        self.answer(effect, fails=True),
                        self.dispatch(effect, 2),
                        self.answer(effect, 2),
                    ]
                elif effect % 100 != 31:  # one effect in a hundred stays unanswered
                    items.append(self.answer(effect, fails=effect % 40 == 17))
            made.append(_batch(items))
        return made

    def split(self, batches: int) -> list[Batch]:
        """Return `batches` batches, by threes: plans, dispatches and answers of 500 effects."""
        made: list[Batch] = []
        while len(made) < batches:
            effects = range(self.effects, self.effects + ITEMS)
            self.effects += ITEMS
            for write in (self.plan, self.dispatch, self.answer):
                made.append(_batch([write(effect) for effect in effects]))
        return made[:batches]

    def report_session(self, effects: int, unanswered: int) -> list[Batch]:
        """Return batches with all facts of `effects` effects, except the answers of the last
        `unanswered`."""
        items: list[bytes] = []
        for effect in range(effects):
            items += [self.plan(effect), self.dispatch(effect)]
            if effect < effects - unanswered:
                items.append(self.answer(effect))
        return [_batch(items[start : start + ITEMS]) for start in range(0, len(items), ITEMS)]

    def end_sessions(self) -> Batch:
        """Return a batch that ends every session."""
        numbers = range(self.sessions)
        return _batch(
            [
                self._item("session.ended", number, {"status": "completed"}, ("reason",))
                for number in numbers
            ]
        )

    def batches(self, workload: str, count: int) -> list[Batch]:
        """Return `count` batches of the named workload."""
        return {"mixed": self.mixed, "split": self.split}[workload](count)


def _batch(items: list[bytes]) -> Batch:
    return Batch(b"[" + b",".join(items) + b"]", len(items))


def sizes(batches: list[Batch]) -> Iterator[float]:
    """Return the mean bytes of an item of each batch."""
    return (len(batch.body) / batch.items for batch in batches)
