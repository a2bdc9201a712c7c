"""Interleavings of W2: three actors add to one record in every order of their steps.

90 orders of read and write run over HTTP and on a session file. 1,680 orders of begin, update and
commit run on the file and on the table, in real transactions (IMMEDIATE on SQLite, READ COMMITTED
on PostgreSQL) with the product's compare-and-set by version. An update is lost if it was confirmed
to its writer and is not in the record.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from evaluation.crashtest.gatebook import Api, Unexpected
from evaluation.crashtest.server import Installation

ACTORS: Final = ("scheduler", "worker", "approver")
ADDS: Final = (1, 10, 100)  # what each adds to the number on the record
PATIENCE_MS: Final = 60_000  # for the installation's own concurrent writes, which take milliseconds


def list_interleavings(steps: int) -> list[tuple[int, ...]]:
    """Return every order of the actors with `steps` steps each: 90 for two, 1,680 for three."""
    return list(_merge((steps,) * len(ACTORS)))


def _merge(remaining: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not any(remaining):
        yield ()
    for actor, steps in enumerate(remaining):
        if steps:
            rest = (*remaining[:actor], steps - 1, *remaining[actor + 1 :])
            for tail in _merge(rest):
                yield (actor, *tail)


def run_on_file(file: Path, orders: Sequence[Sequence[int]]) -> int:
    """Run the orders on a session file, rewritten at each write. Returns how many lose updates."""
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
    """Tasks of Gatebook; their priority is written with If-Match unless `unchecked`."""

    def __init__(self, api: Api, name: str, *, unchecked: bool = False) -> None:
        self._api, self._name, self._careless = api, name, unchecked
        self._numbers = 0
        self.session: str = _require(
            api.post("/sessions", {"key": name}, f"{name}-open"), 200, 201
        )["id"]

    def create(self) -> str:
        """Create a task and return its id."""
        self._numbers += 1
        key = f"t{self._numbers}"
        body = {"key": key, "title": key, "priority": 0}
        task = _require(
            self._api.post(f"/sessions/{self.session}/tasks", body, f"{self._name}-{key}"), 201
        )
        return str(task["id"])

    def read(self) -> dict[str, dict[str, Any]]:
        """Return all tasks of the session by id."""
        tasks: dict[str, dict[str, Any]] = {}
        after = ""
        while True:
            page = _require(self._api.get(f"/sessions/{self.session}/tasks?limit=200{after}"), 200)
            tasks.update({task["id"]: task for task in page["items"]})
            if page["next"] is None:
                return tasks
            after = f"&after={page['next']}"

    def write(self, task: str, seen: dict[str, Any], add: int, key: str) -> bool:
        """Add to the priority that was read; False if the record has changed."""
        self._api.headers.pop("If-Match", None)
        if not self._careless:
            self._api.headers["If-Match"] = f'"{seen["version"]}"'
        try:
            status, reply = self._api.post(
                f"/tasks/{task}/change", {"priority": seen["priority"] + add}, key
            )
        finally:
            self._api.headers.pop("If-Match", None)
        if status == 409 and reply["code"] == "VERSION_CHANGED":
            return False
        _require((status, reply), 200)
        return True


def run_over_http(tasks: Tasks, orders: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Run every order on its own task. Returns how many lose updates, and how many were refused.

    An actor that is refused because the record changed reads it again and retries.
    """
    tasks_of_orders = [tasks.create() for _ in orders]
    seen: list[dict[int, dict[str, Any]]] = [{} for _ in orders]
    retries: list[tuple[int, int]] = []
    refused = 0
    for step in range(len(orders[0])):
        now = tasks.read()
        for number, order in enumerate(orders):
            actor = order[step]
            if actor not in seen[number]:
                seen[number][actor] = now[tasks_of_orders[number]]
            elif not tasks.write(
                tasks_of_orders[number],
                seen[number][actor],
                ADDS[actor],
                f"{tasks_of_orders[number]}-{actor}",
            ):
                retries.append((number, actor))
                refused += 1
    for number, actor in retries:
        turn = 0
        while not tasks.write(
            tasks_of_orders[number],
            tasks.read()[tasks_of_orders[number]],
            ADDS[actor],
            f"{tasks_of_orders[number]}-{actor}-{turn}",
        ):
            turn += 1
    end = tasks.read()
    return sum(end[task]["priority"] != sum(ADDS) for task in tasks_of_orders), refused


class Blocked(Exception):
    """Another transaction holds a lock that the step needs."""


class Connection(Protocol):
    """One actor's connection to the table."""

    def begin(self, record: str, *, alone: bool) -> tuple[int, int]:
        """Begin a transaction and read number and version. Raises Blocked.

        `alone`: no actor is in a transaction, so a lock belongs to the installation itself. That is not a
        step of the order, and the connection waits for it.
        """

    def update(self, record: str, number: int, version: int | None) -> bool:
        """Update the record, if it still has `version`. Raises Blocked after a rollback."""

    def end(self, *, commit: bool) -> None:
        """Commit or roll back."""


class Sqlite:
    """BEGIN IMMEDIATE, as Gatebook uses. The installation's own server may hold the write lock."""

    def __init__(self, installation: Installation) -> None:
        self._db = sqlite3.connect(
            installation.folder / "gatebook.sqlite3", isolation_level=None, timeout=0
        )
        self._db.execute("PRAGMA synchronous = OFF")  # for this connection only

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
    """READ COMMITTED; a locked row raises Blocked at once instead of waiting."""

    def __init__(self, installation: Installation) -> None:
        import psycopg

        self._errors = psycopg.errors
        self._db = psycopg.connect(installation.environment["DATABASE_URL"], autocommit=True)
        self._db.execute("SET synchronous_commit = off")

    def begin(self, record: str, *, alone: bool) -> tuple[int, int]:
        # The installation locks other rows only, so `alone` needs no wait.
        self._db.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        sql = "SELECT priority, version FROM agent_sessions_task WHERE id = %s"
        row = self._db.execute(sql, [record]).fetchone()
        if row is None:
            raise RuntimeError("the record is gone")
        return row[0], row[1]

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


def run_in_transactions(
    connect: Callable[[], Connection],
    record: str,
    reset: Callable[[], None],
    orders: Sequence[Sequence[int]],
    *,
    check: bool,
) -> int:
    """Run every order of begin, update and commit on one row. Returns how many lose updates."""
    connections = [connect() for _ in ACTORS]
    lost = 0
    for order in orders:
        reset()
        lost += _run_order(connections, record, order, check=check) != sum(ADDS)
    return lost


def _run_order(
    connections: Sequence[Connection], record: str, order: Sequence[int], *, check: bool
) -> int:
    waiting = list(
        order
    )  # a blocked actor takes its step as soon as the lock is free, before later ones
    # Rolled back or refused actors retry after the others are done.
    retries: list[int] = []
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
                retries.append(actor)
                waiting = [other for other in waiting if other != actor]
            break
        if len(waiting) == moved:
            raise RuntimeError("all actors are blocked")
    for actor in retries:
        for taken_now in range(3):
            if not _step(
                connections[actor], record, actor, taken_now, seen, check=check, alone=True
            ):
                raise RuntimeError("refused without another transaction")
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
    """Take the next step; False if the record changed and nothing was written."""
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


def _require(answer: tuple[int, dict[str, Any]], *statuses: int) -> dict[str, Any]:
    if answer[0] not in statuses:
        raise Unexpected(f"answered {answer[0]}: {json.dumps(answer[1])[:600]}")
    return answer[1]
