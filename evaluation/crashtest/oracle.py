"""The oracle: a remote service in a process of its own that alone knows what really happened.

    python -m evaluation.crashtest.oracle FILE   prints its port; ends when its standard input closes

It is asked, and answers, in lines of JSON. Its public face is what agents see: `execute`, `probe`,
`cancel`. What it does with a request is the adversary's choice, which comes with the request:
commit · drop · late (in flight until somebody looked or time passed) · lose (commit, but the answer
is lost) · reject. Everything is one append-only log in its own SQLite file; the notes of the rig
stand in the same log, so that what was said can be held against what was so at that moment.
"""

import json
import socketserver
import sqlite3
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

_SCHEMA: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE log (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, world TEXT NOT NULL, what TEXT NOT NULL, step TEXT NOT NULL,
  key TEXT NOT NULL, reference TEXT NOT NULL, detail TEXT NOT NULL
);
CREATE INDEX log_of_world ON log (world, seq);
CREATE TRIGGER log_keeps BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER log_keeps_all BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END;
"""
DEDUPLICATES: Final = frozenset({"idempotency_key"})  # remotes that know a key again


class FakeRemote:
    """What the remote is, without its wire. One world is one run; worlds do not see each other."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._db.executescript(_SCHEMA)
        self._held: dict[str, dict[str, str]] = defaultdict(
            dict
        )  # world -> key -> reference of what stands
        self._known: dict[str, set[str]] = defaultdict(
            set
        )  # world -> keys that are deduplicated still
        self._tombstones: dict[str, set[str]] = defaultdict(set)
        self._flying: dict[str, list[dict[str, str]]] = defaultdict(list)
        self._numbers: dict[str, int] = defaultdict(int)

    def do(self, verb: str, said: dict[str, Any]) -> dict[str, Any]:
        """One request. The answer `{"lost": true}` is one that never arrives."""
        with self._lock:
            answer: dict[str, Any] = getattr(self, f"_{verb}")(said["world"], said)
            return answer

    def _execute(self, world: str, said: dict[str, Any]) -> dict[str, Any]:
        choice = said.get("choice", "commit")
        if choice == "drop":
            self._log(world, "dropped", said)
            return {"lost": True}
        if choice == "late":
            self._log(world, "flying", said)
            self._flying[world].append(said)
            return {"lost": True}
        if choice == "reject":
            self._log(world, "rejected", said)
            return {"rejected": True}
        reference = self._commit(world, said)
        if reference is None:
            return {"rejected": True}
        return {"lost": True} if choice == "lose" else {"reference": reference}

    def _commit(self, world: str, said: dict[str, Any]) -> str | None:
        key = said["key"]
        if key in self._tombstones[world]:
            self._log(world, "refused", said)
            return None
        if said["class"] in DEDUPLICATES and key in self._known[world]:
            self._log(world, "known", said, self._held[world][key])
            return self._held[world][key]
        self._known[world].add(key)
        self._numbers[world] += 1
        reference = f"r{self._numbers[world]}"
        self._held[world][key] = reference
        self._log(world, "committed", said, reference)
        return reference

    def _probe(self, world: str, said: dict[str, Any]) -> dict[str, Any]:
        found = self._held[world].get(said["key"])
        self._log(world, "probed", said, found or "")
        self._land(world)  # late means: after somebody looked
        return {"found": found is not None, "reference": found or ""}

    def _cancel(self, world: str, said: dict[str, Any]) -> dict[str, Any]:
        """Undo what stands under a key (or under a reference), and let nothing under it happen any
        more."""
        key = said["key"]
        self._tombstones[world].add(key)
        reference = self._held[world].pop(key, None)
        self._log(world, "cancelled" if reference else "barred", said, reference or "")
        self._land(world)
        return {"cancelled": reference is not None, "reference": reference or ""}

    def _settle(self, world: str, said: dict[str, Any]) -> dict[str, Any]:
        """Time passes: what is in flight lands, and nothing is in flight any more; after long, keys
        are forgotten."""
        landed = self._land(world)
        if said.get("long"):
            self._known.pop(world, None)
        return {"landed": landed}

    def _note(self, world: str, said: dict[str, Any]) -> dict[str, Any]:
        self._log(world, "note", said, detail=json.dumps(said["note"], sort_keys=True))
        return {}

    def _land(self, world: str) -> int:
        flying = self._flying.pop(world, [])
        for said in flying:
            self._log(world, "landing", said)
            self._commit(world, said)
        return len(flying)

    def _log(
        self, world: str, what: str, said: dict[str, Any], reference: str = "", detail: str = ""
    ) -> None:
        self._db.execute(
            "INSERT INTO log (world, what, step, key, reference, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (world, what, said.get("step", ""), said.get("key", ""), reference, detail),
        )


class _Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    remote: FakeRemote

    def handle(self) -> None:
        for line in self.rfile:
            if not line.endswith(b"\n"):
                return  # whoever said it fell in the middle
            said = json.loads(line)
            answer = self.remote.do(said.pop("verb"), said)
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def main() -> None:
    """Serve until the standard input closes."""
    _Handler.remote = FakeRemote(Path(sys.argv[1]))
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
