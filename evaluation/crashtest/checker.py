"""Five counters, read from the oracle's log alone."""

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
class Findings:
    """What the log shows of a set of runs. `faults` has the replay lines of the first faulty runs."""

    runs: int = 0
    crashed: int = 0
    duplicates: int = 0
    lost: int = 0
    wrong_verdicts: int = 0
    false_safe: int = 0
    unlabelled: int = 0
    undecidable: int = 0  # runs that end with a person
    undecidable_elsewhere: int = (
        0  # with the reason UNDECIDABLE, though the tool's effects can be determined
    )
    abandoned: int = 0
    reasons: Counter[str] = field(default_factory=Counter)  # of runs that end with a person
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _outcomes_by_view: dict[tuple[str, str], dict[bool, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    @property
    def clean(self) -> bool:
        """Whether all five counters are zero and no decidable effect was called undecidable."""
        return not any(self.counters.values()) and not self.undecidable_elsewhere

    @property
    def counters(self) -> dict[str, int]:
        """The five counters by name."""
        values = (self.duplicates, self.lost, self.wrong_verdicts, self.false_safe, self.unlabelled)
        return dict(zip(COUNTERS, values, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return the figures for the JSON file."""
        return {
            "runs": self.runs,
            "crashed": self.crashed,
            **self.counters,
            "ended with a person": self.undecidable,
            "UNDECIDABLE for a decidable tool": self.undecidable_elsewhere,
            "reasons": dict(self.reasons),
            "abandoned": self.abandoned,
            "first faults": {name: lines[:3] for name, lines in self.faults.items()},
        }

    def check_run(self, log: sqlite3.Connection, world: str, case: Case, line: str) -> None:
        """Count the faults of one run."""
        self.runs += 1
        present, most, in_flight, claim, reason = 0, 0, 0, "", ""
        crashed = wrong = is_false_safe = False
        requests, safe_at = (
            0,
            -1,
        )  # requests to the remote so far; their number at the last "safe"
        happened_at_safe = False
        for what, detail in log.execute(
            "SELECT what, detail FROM log WHERE world = ? ORDER BY seq", (world,)
        ):
            requests += what in _REQUESTS
            if what == "committed":
                present += 1
                # Reported as safe while the effect was open, and then repeated.
                is_false_safe = is_false_safe or (safe_at >= 0 and happened_at_safe and present > 1)
                most = max(most, present)
            elif what == "cancelled":
                present -= 1
            elif what == "flying":
                in_flight += 1
            elif what == "landing":
                in_flight -= 1
            elif what == "note":
                note = json.loads(detail)
                crashed = crashed or note["life"] > 1
                if note["kind"] == "safe":
                    safe_at, happened_at_safe = (
                        (requests if note["safe"] is True else -1),
                        present + in_flight > 0,
                    )
                elif note["kind"] == "verdict":
                    wrong = wrong or _is_wrong(note, case, present, in_flight)
                    if note["life"] > 1:
                        self._record_view(note, case, present > 0 or in_flight > 0, line)
                elif note["kind"] == "end":
                    claim, reason = note["claim"], note["reason"]
        self.crashed += crashed
        duplicate = case.remote not in HARMLESS and most > 1
        lost = claim == "done" and present == 0
        if not claim:
            self._record_fault("lost", line)  # the run did not end
            lost = True
        is_handed_over = claim == "handed over"
        if is_handed_over:
            self.reasons[reason] += 1
        self.undecidable += is_handed_over
        self.abandoned += claim == "abandoned"
        if is_handed_over and reason == "UNDECIDABLE" and case.name not in UNDECIDABLE:
            self.undecidable_elsewhere += 1
            self._record_fault("undecidable elsewhere", line)
        is_false_safe = (is_false_safe and duplicate) or (
            safe_at >= 0 and (lost or (is_handed_over and requests == safe_at))
        )
        for name, is_so in (
            ("duplicates", duplicate),
            ("lost", lost),
            ("wrong verdicts", wrong),
            ("false safe", is_false_safe),
        ):
            if is_so:
                self._record_fault(name, line)
        self.duplicates += duplicate
        self.lost += lost
        self.wrong_verdicts += wrong
        self.false_safe += is_false_safe

    def _record_view(self, note: dict[str, Any], case: Case, happened: bool, line: str) -> None:
        """Count decisions on one view that stood for two different outcomes."""
        # COMP_RESUME concerns the compensation, which may be repeated.
        if (
            note["answer"] not in _DECIDES
            or note["reason"] == "COMP_RESUME"
            or _may_repeat(note, case)
        ):
            return
        outcomes = self._outcomes_by_view[(case.name, f"{note['answer']} {note['view']}")]
        before = len(outcomes)
        outcomes.setdefault(happened, line)
        if before == 1 and len(outcomes) == 2:
            self.unlabelled += 1
            self._record_fault("unlabelled ambiguities", " | ".join(outcomes.values()))

    def _record_fault(self, name: str, line: str) -> None:
        if len(self.faults[name]) < 20:
            self.faults[name].append(line)


def _is_wrong(note: dict[str, Any], case: Case, present: int, in_flight: int) -> bool:
    """Whether the decision is wrong: acting on a present or in-flight effect, or skipping an absent one."""
    if note["answer"] == "skip":
        return (
            note["reason"] not in ("CLOSED", "ATTEMPTS_SPENT", "GATE_DENIED", "GATE_EXPIRED")
            and present == 0
        )
    if note["answer"] in ("execute", "replay") and note["reason"] != "COMP_RESUME":
        return not _may_repeat(note, case) and present + in_flight > 0
    return False


def _may_repeat(note: dict[str, Any], case: Case) -> bool:
    """Whether a repetition is harmless; inside its window the remote knows our key."""
    return case.repeatable or (case.remote == "idempotency_key" and note["reason"] == "KEY_LIVE")
