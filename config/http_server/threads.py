"""The threads that run the application. They are started on demand and kept."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import structlog

log = structlog.get_logger("gatebook.web")

Task: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]


class ThreadPool:
    """At most `most` threads, which run submitted tasks in their order.

    The thread that became idle last gets the next task. After a burst the same few threads are
    reused, with their warm caches, and not each of hundreds in turn.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._lock = threading.Lock()
        self._tasks: deque[Task] = deque()  # only when all threads are busy
        self._idle: list[_Thread] = []

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run `work` in a thread."""
        with self._lock:
            if self._idle:
                self._idle.pop().give((work, arguments))
                return
            if self._count >= self._most:
                self._tasks.append((work, arguments))
                return
            self._count += 1
        thread = _Thread(self)
        thread.give((work, arguments))
        try:
            threading.Thread(target=thread.run, name=f"web-{self._count}", daemon=True).start()
        except RuntimeError as error:
            # The system grants no more threads: the existing ones take the task.
            log.error("thread_not_started", error=str(error)[:300])
            with self._lock:
                self._count -= 1
                if self._idle:
                    self._idle.pop().give((work, arguments))
                elif self._count:
                    self._tasks.append((work, arguments))
                else:
                    raise

    def take(self, thread: "_Thread") -> Task | None:
        """Return the oldest waiting task; None when none waits and `thread` becomes idle."""
        with self._lock:
            if self._tasks:
                return self._tasks.popleft()
            self._idle.append(thread)
            return None


class _Thread:
    def __init__(self, threads: ThreadPool) -> None:
        self._threads = threads
        self._task: Task | None = None
        self._given = threading.Lock()
        self._given.acquire()

    def give(self, task: Task) -> None:
        self._task = task
        self._given.release()

    def run(self) -> None:
        while True:
            self._given.acquire()
            task, self._task = self._task, None
            while task is not None:
                work, arguments = task
                try:
                    work(*arguments)
                except BaseException as error:  # an ended thread is never replaced
                    log.error("thread_failed", error=f"{type(error).__name__}: {error}"[:300])
                del work, arguments
                task = self._threads.take(self)
