"""The baselines: one JSON file per session, as many agents store it."""

import json
import os
from pathlib import Path
from typing import Any, Final

from evaluation.crashtest.domain import Release, Step, Verdict
from evaluation.crashtest.schedules import Choices

# "saved after" saves after each effect. The others save the intent first, and are named after
# what a restart does with an intent that has no result.
POLICIES: Final = ("saved after", "replay", "skip", "ask")


class Blob:
    """One process over one session file, saved by rename or `in_place` (truncated and rewritten)."""

    def __init__(
        self, file: Path, policy: str, choices: Choices, *, in_place: bool = False
    ) -> None:
        self._file, self._policy, self._choices, self._in_place = file, policy, choices, in_place
        self._state: dict[str, Any] = {}

    def open(self) -> None:
        try:
            self._state = json.loads(self._file.read_text())
        except (OSError, json.JSONDecodeError):
            self._state = {"steps": {}}  # missing or unreadable

    def can_resume(self) -> bool | None:
        """Return True unless the policy asks: the file cannot express an unknown outcome."""
        return self._policy != "ask" or all(
            entry["state"] != "intended" for entry in self._state["steps"].values()
        )

    def get_verdict(self, step: Step) -> Verdict:
        entry = self._state["steps"].get(step.key)
        view = json.dumps(
            {name: value for name, value in (entry or {}).items() if name in ("state", "attempt")}
        )
        if entry is None:
            return Verdict("execute", "NOT_BEGUN", view=view)
        if entry["state"] == "done":
            return Verdict("skip", "DONE", view=view)
        if entry["state"] == "rejected":
            return Verdict("replay", "REJECTED", attempt=entry["attempt"], view=view)
        answer = {"replay": "replay", "saved after": "replay", "skip": "skip", "ask": "escalate"}[
            self._policy
        ]
        return Verdict(
            answer, "INTENDED", attempt=entry["attempt"], remote_key=entry["key"], view=view
        )

    def dispatch(self, step: Step, verdict: Verdict) -> Release:
        attempt = verdict.attempt + 1
        # A replay sends the same key, because some remotes deduplicate by key.
        release = Release(attempt, verdict.remote_key or f"{self._file.stem}-{step.key}-{attempt}")
        if self._policy != "saved after":
            self._store(step, {"state": "intended", "key": release.remote_key, "attempt": attempt})
        return release

    def report_success(self, step: Step, release: Release, reference: str) -> None:
        self._store(step, {"state": "done", "reference": reference, "attempt": release.attempt})

    def report_failure(self, step: Step, release: Release, reason: str) -> None:
        state = "rejected" if reason == "rejected" else "intended"
        self._store(step, {"state": state, "key": release.remote_key, "attempt": release.attempt})

    def report_probe(
        self, step: Step, verdict: Verdict, reference: str | None, began_us: int
    ) -> None:
        raise NotImplementedError("a session file has no probes")

    def compensate(self, step: Step, undone: Step) -> Verdict:
        raise NotImplementedError("a session file does not compensate")

    def checkpoint(self, summary: dict[str, Any]) -> None:
        self._state["summary"] = summary
        self._save()

    def _store(self, step: Step, value: dict[str, Any]) -> None:
        self._state["steps"][step.key] = value
        self._save()

    def _save(self) -> None:
        text = json.dumps(self._state)
        if not self._in_place:
            fresh = self._file.with_suffix(".new")
            fresh.write_text(text)
            fresh.replace(self._file)
            return
        with self._file.open("w") as opened:
            self._choices.tick("blob cut to nothing")
            opened.write(text[: len(text) // 2])
            opened.flush()
            os.fsync(opened.fileno())
            self._choices.tick("half of the blob written")
            opened.write(text[len(text) // 2 :])
