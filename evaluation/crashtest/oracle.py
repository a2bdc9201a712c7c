"""The oracle: a remote service in its own process, the only record of what happened.

    python -m evaluation.crashtest.oracle FILE   prints its port; ends when its standard input closes

It reads requests and writes answers as lines of JSON. Agents use `execute`, `probe` and `cancel`.
The request carries the adversary's choice of what the remote does: commit · drop · late (in flight
until a probe arrives or time passes) · lose (commit, but the answer is lost) · reject. All
requests go into one append-only log in the oracle's own SQLite file. The notes of the rig are in
the same log, so the order of claims and facts is known.
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
CREATE TRIGGER log_without_updates BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER log_without_deletes BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'append only'); END;
"""
DEDUPLICATES: Final = frozenset({"idempotency_key"})  # remotes that deduplicate by key


class FakeRemote:
    """The remote without its connection. One world is one run; worlds are isolated."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._db.executescript(_SCHEMA)
        self._references: dict[str, dict[str, str]] = defaultdict(
            dict
        )  # world -> key -> reference of a present effect
        self._known: dict[str, set[str]] = defaultdict(
            set
        )  # world -> keys that are still deduplicated
        self._tombstones: dict[str, set[str]] = defaultdict(set)
        self._in_flight: dict[str, list[dict[str, str]]] = defaultdict(list)
        self._numbers: dict[str, int] = defaultdict(int)

    def serve(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        """Serve one request. An answer `{"lost": true}` never arrives."""
        with self._lock:
            answer: dict[str, Any] = getattr(self, f"_{verb}")(request["world"], request)
            return answer

    def _execute(self, world: str, request: dict[str, Any]) -> dict[str, Any]:
        choice = request.get("choice", "commit")
        if choice == "drop":
            self._log(world, "dropped", request)
            return {"lost": True}
        if choice == "late":
            self._log(world, "flying", request)
            self._in_flight[world].append(request)
            return {"lost": True}
        if choice == "reject":
            self._log(world, "rejected", request)
            return {"rejected": True}
        reference = self._commit(world, request)
        if reference is None:
            return {"rejected": True}
        return {"lost": True} if choice == "lose" else {"reference": reference}

    def _commit(self, world: str, request: dict[str, Any]) -> str | None:
        key = request["key"]
        if key in self._tombstones[world]:
            self._log(world, "refused", request)
            return None
        if request["class"] in DEDUPLICATES and key in self._known[world]:
            self._log(world, "known", request, self._references[world][key])
            return self._references[world][key]
        self._known[world].add(key)
        self._numbers[world] += 1
        reference = f"r{self._numbers[world]}"
        self._references[world][key] = reference
        self._log(world, "committed", request, reference)
        return reference

    def _probe(self, world: str, request: dict[str, Any]) -> dict[str, Any]:
        reference = self._references[world].get(request["key"])
        self._log(world, "probed", request, reference or "")
        self._land(world)  # late requests land after a probe
        return {"found": reference is not None, "reference": reference or ""}

    def _cancel(self, world: str, request: dict[str, Any]) -> dict[str, Any]:
        """Undo the effect of a key, and refuse later requests with that key."""
        key = request["key"]
        self._tombstones[world].add(key)
        reference = self._references[world].pop(key, None)
        self._log(world, "cancelled" if reference else "barred", request, reference or "")
        self._land(world)
        return {"cancelled": reference is not None, "reference": reference or ""}

    def _settle(self, world: str, request: dict[str, Any]) -> dict[str, Any]:
        """Let time pass: requests in flight land; after a long time, keys are forgotten."""
        landed = self._land(world)
        if request.get("long"):
            self._known.pop(world, None)
        return {"landed": landed}

    def _note(self, world: str, request: dict[str, Any]) -> dict[str, Any]:
        self._log(world, "note", request, detail=json.dumps(request["note"], sort_keys=True))
        return {}

    def _land(self, world: str) -> int:
        in_flight = self._in_flight.pop(world, [])
        for request in in_flight:
            self._log(world, "landing", request)
            self._commit(world, request)
        return len(in_flight)

    def _log(
        self, world: str, what: str, request: dict[str, Any], reference: str = "", detail: str = ""
    ) -> None:
        self._db.execute(
            "INSERT INTO log (world, what, step, key, reference, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (world, what, request.get("step", ""), request.get("key", ""), reference, detail),
        )


class _Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    remote: FakeRemote

    def handle(self) -> None:
        for line in self.rfile:
            if not line.endswith(b"\n"):
                return  # the client died inside the line
            request = json.loads(line)
            answer = self.remote.serve(request.pop("verb"), request)
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
