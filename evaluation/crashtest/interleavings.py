"""W2, on one record: scheduler, worker and approver each add to it, in every interleaving of their
steps.

90 of read and write, over the doors of Gatebook and on a session file; 1,680 of begin, update and
commit, on the table itself in real transactions (IMMEDIATE on SQLite, READ COMMITTED on PostgreSQL)
with the compare-and-set by version that the product uses, and on the file. A lost update is one
that its writer was told to be kept and that is not there.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from evaluation.crashtest.gatebook import Api, Unexpected
from evaluation.crashtest.server import House

ACTORS: Final = ("scheduler", "worker", "approver")
ADDS: Final = (1, 10, 100)  # what each adds to the number on the record
PATIENCE_MS: Final = 60_000  # for the house's own writes beside the actors, which take milliseconds


def interleavings(steps: int) -> list[tuple[int, ...]]:
    """Every order in which the actors can take so many steps each: 90 for two, 1,680 for three."""
    return list(_merge((steps,) * len(ACTORS)))


def _merge(left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not any(left):
        yield ()
    for actor, steps in enumerate(left):
        if steps:
            rest = (*left[:actor], steps - 1, *left[actor + 1 :])
            for tail in _merge(rest):
                yield (actor, *tail)


def on_a_file(file: Path, orders: Sequence[Sequence[int]]) -> int:
    """The session file: whoever writes writes the whole of it as they read it. Returns how many
    orders lose."""
    lost = 0
    for order in orders:
        file.write_text('{"number": 0}')
        read, taken = [0, 0, 0], [0, 0, 0]
        last = len(order) // len(ACTORS)
        for actor in order:
            taken[actor] += 1
            if taken[actor] == 1:
                read[actor] = json.loads(file.read_text())["number"]
            if taken[actor] == last:
                fresh = file.with_suffix(".new")
                fresh.write_text(json.dumps({"number": read[actor] + ADDS[actor]}))
                fresh.replace(file)
        lost += json.loads(file.read_text())["number"] != sum(ADDS)
    return lost


class Tasks:
    """Records of Gatebook: a task's priority, read by GET and written by POST, with If-Match unless
    `careless`."""

    def __init__(self, api: Api, name: str, *, careless: bool = False) -> None:
        self._api, self._name, self._careless = api, name, careless
        self._numbers = 0
        self.session: str = _expect(api.post("/sessions", {"key": name}, f"{name}-open"), 200, 201)[
            "id"
        ]

    def new(self) -> str:
        """A fresh task; its id."""
        self._numbers += 1
        key = f"t{self._numbers}"
        body = {"key": key, "title": key, "priority": 0}
        said = _expect(
            self._api.post(f"/sessions/{self.session}/tasks", body, f"{self._name}-{key}"), 201
        )
        return str(said["id"])

    def read(self) -> dict[str, dict[str, Any]]:
        """All tasks of the session by id."""
        found: dict[str, dict[str, Any]] = {}
        after = ""
        while True:
            said = _expect(self._api.get(f"/sessions/{self.session}/tasks?limit=200{after}"), 200)
            found.update({one["id"]: one for one in said["items"]})
            if said["next"] is None:
                return found
            after = f"&after={said['next']}"

    def write(self, task: str, seen: dict[str, Any], add: int, key: str) -> bool:
        """Add to what was seen; False when the record is another by now."""
        self._api.headers.pop("If-Match", None)
        if not self._careless:
            self._api.headers["If-Match"] = f'"{seen["version"]}"'
        try:
            status, said = self._api.post(
                f"/tasks/{task}/change", {"priority": seen["priority"] + add}, key
            )
        finally:
            self._api.headers.pop("If-Match", None)
        if status == 409 and said["code"] == "VERSION_CHANGED":
            return False
        _expect((status, said), 200)
        return True


def over_http(tasks: Tasks, orders: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Every order on a task of its own, side by side step by step. Returns how many orders lose,
    and refusals told.

    Whoever is told that the record changed reads it again and adds to that.
    """
    made = [tasks.new() for _ in orders]
    seen: list[dict[int, dict[str, Any]]] = [{} for _ in orders]
    again: list[tuple[int, int]] = []
    refused = 0
    for step in range(len(orders[0])):
        now = tasks.read()
        for number, order in enumerate(orders):
            actor = order[step]
            if actor not in seen[number]:
                seen[number][actor] = now[made[number]]
            elif not tasks.write(
                made[number], seen[number][actor], ADDS[actor], f"{made[number]}-{actor}"
            ):
                again.append((number, actor))
                refused += 1
    for number, actor in again:
        turn = 0
        while not tasks.write(
            made[number], tasks.read()[made[number]], ADDS[actor], f"{made[number]}-{actor}-{turn}"
        ):
            turn += 1
    end = tasks.read()
    return sum(end[task]["priority"] != sum(ADDS) for task in made), refused


class Blocked(Exception):
    """Another transaction holds what this step needs."""


class Connection(Protocol):
    """One actor's connection to the table."""

    def begin(self, record: str, *, alone: bool) -> tuple[int, int]:
        """Begin a transaction and read number and version. Raises Blocked.

        `alone`: no actor is within a transaction, so whoever holds the table now is the house
        itself, at work beside the actors; that is no step of the order, and is waited for.
        """

    def update(self, record: str, number: int, version: int | None) -> bool:
        """Write; with a version only where the record still has it. Raises Blocked, the transaction
        rolled back."""

    def end(self, *, commit: bool) -> None:
        """Commit or roll back."""


class Sqlite:
    """BEGIN IMMEDIATE, as Gatebook begins there. The one writer of the file may also be the house's
    own server."""

    def __init__(self, house: House) -> None:
        self._db = sqlite3.connect(
            house.folder / "gatebook.sqlite3", isolation_level=None, timeout=0
        )
        self._db.execute("PRAGMA synchronous = OFF")  # of this connection: no power fails here

    def begin(self, record: str, *, alone: bool) -> tuple[int, int]:
        self._db.execute(f"PRAGMA busy_timeout = {PATIENCE_MS if alone else 0}")
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise Blocked from error
        sql = "SELECT priority, version FROM agent_sessions_task WHERE id = ?"
        number, version = self._db.execute(sql, [record]).fetchone()
        return number, version

    def update(self, record: str, number: int, version: int | None) -> bool:
        sql = "UPDATE agent_sessions_task SET priority = ?, version = version + 1 WHERE id = ?"
        values: list[Any] = [number, record]
        if version is not None:
            sql, values = f"{sql} AND version = ?", [*values, version]
        return self._db.execute(sql, values).rowcount == 1

    def end(self, *, commit: bool) -> None:
        self._db.execute("COMMIT" if commit else "ROLLBACK")


class Postgres:
    """READ COMMITTED; a row that another holds is told of at once, where life would wait."""

    def __init__(self, house: House) -> None:
        import psycopg

        self._errors = psycopg.errors
        self._db = psycopg.connect(house.environment["DATABASE_URL"], autocommit=True)
        self._db.execute("SET synchronous_commit = off")

    def begin(self, record: str, *, alone: bool) -> tuple[int, int]:
        # The house locks other rows than this one, whoever is alone.
        self._db.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        sql = "SELECT priority, version FROM agent_sessions_task WHERE id = %s"
        found = self._db.execute(sql, [record]).fetchone()
        if found is None:
            raise RuntimeError("the record is gone")
        return found[0], found[1]

    def update(self, record: str, number: int, version: int | None) -> bool:
        try:
            self._db.execute(
                "SELECT FROM agent_sessions_task WHERE id = %s FOR UPDATE NOWAIT", [record]
            )
        except self._errors.LockNotAvailable as error:
            self._db.execute("ROLLBACK")
            raise Blocked from error
        sql = "UPDATE agent_sessions_task SET priority = %s, version = version + 1 WHERE id = %s"
        if version is None:
            return self._db.execute(sql, [number, record]).rowcount == 1
        return self._db.execute(f"{sql} AND version = %s", [number, record, version]).rowcount == 1

    def end(self, *, commit: bool) -> None:
        self._db.execute("COMMIT" if commit else "ROLLBACK")


def in_transactions(
    connect: Callable[[], Connection],
    record: str,
    reset: Callable[[], None],
    orders: Sequence[Sequence[int]],
    *,
    check: bool,
) -> int:
    """Every order of begin, update and commit on one row. Returns how many lose; `check` is the
    compare-and-set."""
    connections = [connect() for _ in ACTORS]
    lost = 0
    for order in orders:
        reset()
        lost += _one_order(connections, record, order, check=check) != sum(ADDS)
    return lost


def _one_order(
    connections: Sequence[Connection], record: str, order: Sequence[int], *, check: bool
) -> int:
    waiting = list(
        order
    )  # whoever is blocked takes the step as soon as it is free, before those that come later
    again: list[
        int
        # thrown out, or told that the record changed: everything once more, when the others are
        # done
    ] = []
    taken, seen = [0, 0, 0], [(0, 0)] * 3
    while waiting:
        moved = len(waiting)
        alone = not any(taken[actor] for actor in waiting)
        for place, actor in enumerate(waiting):
            try:
                done = _step(
                    connections[actor], record, actor, taken[actor], seen, check=check, alone=alone
                )
            except Blocked:
                if taken[actor] == 0:
                    continue
                done = False
            if done:
                taken[actor] += 1
                del waiting[place]
            else:
                again.append(actor)
                waiting = [one for one in waiting if one != actor]
            break
        if len(waiting) == moved:
            raise RuntimeError("everybody waits for everybody")
    for actor in again:
        for taken_now in range(3):
            if not _step(
                connections[actor], record, actor, taken_now, seen, check=check, alone=True
            ):
                raise RuntimeError("refused with nobody beside")
    number, _ = connections[0].begin(record, alone=True)
    connections[0].end(commit=False)
    return number


def _step(
    connection: Connection,
    record: str,
    actor: int,
    taken: int,
    seen: list[tuple[int, int]],
    *,
    check: bool,
    alone: bool,
) -> bool:
    """Take the next step; False when the record changed and nothing was written."""
    if taken == 0:
        seen[actor] = connection.begin(record, alone=alone)
    elif taken == 1:
        number, version = seen[actor]
        if not connection.update(record, number + ADDS[actor], version if check else None):
            connection.end(commit=False)
            return False
    else:
        connection.end(commit=True)
    return True


def _expect(answer: tuple[int, dict[str, Any]], *statuses: int) -> dict[str, Any]:
    if answer[0] not in statuses:
        raise Unexpected(f"answered {answer[0]}: {json.dumps(answer[1])[:600]}")
    return answer[1]
