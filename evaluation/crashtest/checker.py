"""Five counters, decided by the oracle's log alone: what was said held against what was so at that
moment."""

import json
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from evaluation.crashtest.domain import HARMLESS, UNDECIDABLE, Case

COUNTERS: Final = ("duplicates", "lost", "wrong verdicts", "false safe", "unlabelled ambiguities")
_DECIDES: Final = ("execute", "replay", "skip")
_REQUESTS: Final = ("committed", "known", "refused", "rejected", "dropped", "flying")


@dataclass
class Found:
    """What the log shows of a set of runs. `faults` names the first runs of each counter by their
    replay lines."""

    runs: int = 0
    crashed: int = 0
    duplicates: int = 0
    lost: int = 0
    wrong_verdicts: int = 0
    false_safe: int = 0
    unlabelled: int = 0
    undecidable: int = 0  # runs that end with a person
    undecidable_elsewhere: int = (
        0  # ... with the reason UNDECIDABLE, of a tool whose effects can be known
    )
    given_up: int = 0
    reasons: Counter[str] = field(default_factory=Counter)  # of those that end with a person
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _seen: dict[tuple[str, str], dict[bool, str]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def clean(self) -> bool:
        """Whether all five counters are nought, and nothing undecidable that could be known."""
        return not any(self.counters.values()) and not self.undecidable_elsewhere

    @property
    def counters(self) -> dict[str, int]:
        """The five, by name."""
        values = (self.duplicates, self.lost, self.wrong_verdicts, self.false_safe, self.unlabelled)
        return dict(zip(COUNTERS, values, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        return {
            "runs": self.runs,
            "crashed": self.crashed,
            **self.counters,
            "ended with a person": self.undecidable,
            "UNDECIDABLE of a tool that can be known": self.undecidable_elsewhere,
            "their reasons": dict(self.reasons),
            "given up": self.given_up,
            "first faults": {name: lines[:3] for name, lines in self.faults.items()},
        }

    def judge(self, log: sqlite3.Connection, world: str, case: Case, line: str) -> None:
        """Read one run."""
        self.runs += 1
        standing, most, flying, claim, reason = 0, 0, 0, "", ""
        crashed = wrong = falsely = False
        requests, safe_at = (
            0,
            -1,
        )  # requests of the remote so far; how many there were when "safe" was said last
        happened_at_safe = False
        for what, detail in log.execute(
            "SELECT what, detail FROM log WHERE world = ? ORDER BY seq", (world,)
        ):
            requests += what in _REQUESTS
            if what == "committed":
                standing += 1
                # Said to be safe with this open, and it was done once more.
                falsely = falsely or (safe_at >= 0 and happened_at_safe and standing > 1)
                most = max(most, standing)
            elif what == "cancelled":
                standing -= 1
            elif what == "flying":
                flying += 1
            elif what == "landing":
                flying -= 1
            elif what == "note":
                note = json.loads(detail)
                crashed = crashed or note["life"] > 1
                if note["kind"] == "safe":
                    safe_at, happened_at_safe = (
                        (requests if note["safe"] is True else -1),
                        standing + flying > 0,
                    )
                elif note["kind"] == "verdict":
                    wrong = wrong or _is_wrong(note, case, standing, flying)
                    if note["life"] > 1:
                        self._seen_as(note, case, standing > 0 or flying > 0, line)
                elif note["kind"] == "end":
                    claim, reason = note["claim"], note["reason"]
        self.crashed += crashed
        duplicate = case.remote not in HARMLESS and most > 1
        lost = claim == "done" and standing == 0
        if not claim:
            self._fault("lost", line)  # the run came to no end
            lost = True
        handed = claim == "handed over"
        if handed:
            self.reasons[reason] += 1
        self.undecidable += handed
        self.given_up += claim == "given up"
        if handed and reason == "UNDECIDABLE" and case.name not in UNDECIDABLE:
            self.undecidable_elsewhere += 1
            self._fault("undecidable elsewhere", line)
        falsely = (falsely and duplicate) or (
            safe_at >= 0 and (lost or (handed and requests == safe_at))
        )
        for name, is_so in (
            ("duplicates", duplicate),
            ("lost", lost),
            ("wrong verdicts", wrong),
            ("false safe", falsely),
        ):
            if is_so:
                self._fault(name, line)
        self.duplicates += duplicate
        self.lost += lost
        self.wrong_verdicts += wrong
        self.false_safe += falsely

    def _seen_as(self, note: dict[str, Any], case: Case, happened: bool, line: str) -> None:
        """One and the same record that stood for two different fates, and was acted on all the
        same."""
        # COMP_RESUME speaks of the undoing, which may be done again.
        if (
            note["answer"] not in _DECIDES
            or note["reason"] == "COMP_RESUME"
            or _may_repeat(note, case)
        ):
            return
        fates = self._seen[(case.name, f"{note['answer']} {note['view']}")]
        before = len(fates)
        fates.setdefault(happened, line)
        if before == 1 and len(fates) == 2:
            self.unlabelled += 1
            self._fault("unlabelled ambiguities", " | ".join(fates.values()))

    def _fault(self, name: str, line: str) -> None:
        if len(self.faults[name]) < 20:
            self.faults[name].append(line)


def _is_wrong(note: dict[str, Any], case: Case, standing: int, flying: int) -> bool:
    """A decision against what is so: to act on what stands (or may still land), or to pass over
    what does not stand."""
    if note["answer"] == "skip":
        return (
            note["reason"] not in ("CLOSED", "ATTEMPTS_SPENT", "GATE_DENIED", "GATE_EXPIRED")
            and standing == 0
        )
    if note["answer"] in ("execute", "replay") and note["reason"] != "COMP_RESUME":
        return not _may_repeat(note, case) and standing + flying > 0
    return False


def _may_repeat(note: dict[str, Any], case: Case) -> bool:
    """Whether to ask again is right whatever became of the last request; inside its window the
    remote knows our key."""
    return case.repeatable or (case.remote == "idempotency_key" and note["reason"] == "KEY_LIVE")
