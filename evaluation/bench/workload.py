"""What the clients of the benchmark send: evidence of about 590 bytes an item, in batches ready to
be posted.

Two workloads. In `mixed` all facts of an effect stand in one batch, some fail and are tried again,
and every seventh item is of a kind that moves nothing. In `split` each effect's plan, dispatch and
answer travel in three batches, one after another, so that two of three facts change a row that is
there already. One item in 25 holds a word outside ASCII, another in 25 a number with a fraction,
one in 50 a word that makes the reader look for secrets.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

ITEMS: Final = 500  # of a batch
BYTES: Final = 590  # of an item, about
SESSIONS: Final = 8  # that one client reports of
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
    """One body for POST /events and how many items it holds."""

    body: bytes
    items: int


def _pick(number: int, count: int) -> int:
    """A repeatable choice below `count` that looks like chance: the mixing step of a hash."""
    number = (number ^ (number >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    number = (number ^ (number >> 12)) * 0x297A2D39 & 0xFFFFFFFF
    return (number ^ (number >> 15)) % count


def prose(seed: int, size: int) -> str:
    """Text of about `size` bytes, always the same for one seed."""
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
    """Writes the items of one client. `name` keeps its ids, keys and sessions apart from those of
    every other.

    With `rich`, plans also name tasks and targets: what the pages show, and searches ask for.
    """

    def __init__(self, name: str, *, sessions: int = SESSIONS, rich: bool = False) -> None:
        self.name, self.sessions, self.rich = name, sessions, rich
        self.items = 0
        self.effects = 0

    def _item(
        self, kind: str, effect: int, fields: dict[str, Any], filler: tuple[str, ...]
    ) -> bytes:
        """One item; the text at `filler` (a path in `fields`) is made long enough for the usual
        size."""
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
        known = len(json.dumps(item, separators=(",", ":")))
        place[filler[-1]] = prose(number, max(16, BYTES - known - len(filler[-1]) - 6))
        return json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()

    def plan(self, effect: int) -> bytes:
        """A plan of effect number `effect`."""
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
        """The dispatch of an attempt."""
        fields = {
            "effect_key": f"call-{effect}",
            "attempt": attempt,
            "process": f"worker-{self.name}",
        }
        return self._item("effect.dispatched", effect, fields, ("request", "text"))

    def answer(self, effect: int, attempt: int = 1, *, fails: bool = False) -> bytes:
        """What came of an attempt: an acknowledgement, or a clean rejection."""
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
        """A fact of a kind that moves nothing."""
        return self._item("model.message", self.items, {"role": "assistant"}, ("text",))

    def mixed(self, batches: int) -> list[Batch]:
        """`batches` batches in which every effect is told whole."""
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
                elif effect % 100 != 31:  # of one in a hundred nothing more is ever heard
                    items.append(self.answer(effect, fails=effect % 40 == 17))
            made.append(_batch(items))
        return made

    def split(self, batches: int) -> list[Batch]:
        """`batches` batches, by threes: the plans of 500 effects, then their dispatches, then their
        answers."""
        made: list[Batch] = []
        while len(made) < batches:
            effects = range(self.effects, self.effects + ITEMS)
            self.effects += ITEMS
            for write in (self.plan, self.dispatch, self.answer):
                made.append(_batch([write(effect) for effect in effects]))
        return made[:batches]

    def ended(self, effects: int, unanswered: int) -> list[Batch]:
        """Batches in which `effects` effects are told, but for the answers of the last
        `unanswered`."""
        items: list[bytes] = []
        for effect in range(effects):
            items += [self.plan(effect), self.dispatch(effect)]
            if effect < effects - unanswered:
                items.append(self.answer(effect))
        return [_batch(items[start : start + ITEMS]) for start in range(0, len(items), ITEMS)]

    def ends(self) -> Batch:
        """A batch in which every session is told to have come to its end."""
        numbers = range(self.sessions)
        return _batch(
            [
                self._item("session.ended", number, {"status": "completed"}, ("reason",))
                for number in numbers
            ]
        )

    def batches(self, workload: str, count: int) -> list[Batch]:
        """`count` batches of the workload of that name."""
        return {"mixed": self.mixed, "split": self.split}[workload](count)


def _batch(items: list[bytes]) -> Batch:
    return Batch(b"[" + b",".join(items) + b"]", len(items))


def sizes(batches: list[Batch]) -> Iterator[float]:
    """The mean bytes of an item, batch by batch."""
    return (len(batch.body) / batch.items for batch in batches)
