"""The baselines: the whole session in one JSON file, as many agents keep it."""

import json
import os
from pathlib import Path
from typing import Any, Final

from evaluation.crashtest.domain import Release, Step, Verdict
from evaluation.crashtest.schedules import Choices

# Saved after each effect only; or with the intent inside, and what a restart does with one that has
# no result.
POLICIES: Final = ("saved after", "replay", "skip", "ask")


class Blob:
    """One process over one session file. Saved by rename, or `in_place`: cut to nothing and written
    again."""

    def __init__(
        self, file: Path, policy: str, choices: Choices, *, in_place: bool = False
    ) -> None:
        self._file, self._policy, self._choices, self._in_place = file, policy, choices, in_place
        self._state: dict[str, Any] = {}

    def open(self) -> None:
        try:
            self._state = json.loads(self._file.read_text())
        except (OSError, json.JSONDecodeError):
            self._state = {"steps": {}}  # nothing there, or nothing that can be read

    def safe(self) -> bool | None:
        """It says yes wherever it does not ask: the file has no word for what it cannot know."""
        return self._policy != "ask" or all(
            one["state"] != "intended" for one in self._state["steps"].values()
        )

    def look(self, step: Step) -> Verdict:
        found = self._state["steps"].get(step.key)
        view = json.dumps(
            {name: value for name, value in (found or {}).items() if name in ("state", "attempt")}
        )
        if found is None:
            return Verdict("execute", "NOT_BEGUN", view=view)
        if found["state"] == "done":
            return Verdict("skip", "DONE", view=view)
        if found["state"] == "rejected":
            return Verdict("replay", "REJECTED", attempt=found["attempt"], view=view)
        answer = {"replay": "replay", "saved after": "replay", "skip": "skip", "ask": "escalate"}[
            self._policy
        ]
        return Verdict(
            answer, "INTENDED", attempt=found["attempt"], remote_key=found["key"], view=view
        )

    def release(self, step: Step, verdict: Verdict) -> Release:
        attempt = verdict.attempt + 1
        # To be fair: a replay offers the same key, which helps where the remote deduplicates.
        release = Release(attempt, verdict.remote_key or f"{self._file.stem}-{step.key}-{attempt}")
        if self._policy != "saved after":
            self._keep(step, {"state": "intended", "key": release.remote_key, "attempt": attempt})
        return release

    def settled(self, step: Step, release: Release, reference: str) -> None:
        self._keep(step, {"state": "done", "reference": reference, "attempt": release.attempt})

    def failed(self, step: Step, release: Release, reason: str) -> None:
        state = "rejected" if reason == "rejected" else "intended"
        self._keep(step, {"state": state, "key": release.remote_key, "attempt": release.attempt})

    def probed(self, step: Step, verdict: Verdict, reference: str | None, began_us: int) -> None:
        raise NotImplementedError("a blob never asks for a look")

    def undo(self, step: Step, undone: Step) -> Verdict:
        raise NotImplementedError("a blob never undoes")

    def checkpoint(self, summary: dict[str, Any]) -> None:
        self._state["summary"] = summary
        self._save()

    def _keep(self, step: Step, value: dict[str, Any]) -> None:
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
