"""`python -m config.http_server MODULE:APPLICATION`: bind and run the workers.

Ends when a worker ends.

On SIGTERM or SIGINT each worker answers the requests that it has received completely. A worker that
takes longer than `--workers-kill-timeout` is killed.
"""

import argparse
import ctypes
import importlib
import multiprocessing
import os
import signal
import socket
import sys
import time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Final

PR_SET_PDEATHSIG: Final = 1
POLL_S: Final = 0.5
SEND_BUFFER: Final = 131_072


def bind_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on `host` and `port`."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit this. By default the system buffers 4 MB for each client that does not
    # read.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    listening.bind((host, port))
    listening.listen(backlog)
    return listening


def serve_worker(listening: socket.socket, application: str, threads: int, parent: int) -> None:
    """Serve here. Only the child imports the application and uses the database."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
    module, _, name = application.partition(":")
    loaded = getattr(importlib.import_module(module), name)

    from config.http_server.limits import read_limits
    from config.http_server.worker import Worker

    Worker(loaded, listening, threads, read_limits()).run()


def main() -> int:
    """Run the workers; return 0 after a signal and 1 when a worker ended by itself."""
    parser = argparse.ArgumentParser(
        prog="python -m config.http_server", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("application")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--blocking-threads", type=int, default=16)
    parser.add_argument("--backlog", type=int, default=2048)
    parser.add_argument("--workers-kill-timeout", type=float, default=3.0)
    options = parser.parse_args()
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    listening = bind_socket(options.host, options.port, options.backlog)
    fork = multiprocessing.get_context("fork")
    arguments = listening, options.application, options.blocking_threads, os.getpid()
    workers: list[BaseProcess] = [
        fork.Process(target=serve_worker, args=arguments) for _ in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    listening.close()
    while not stopping and all(worker.is_alive() for worker in workers):
        wait([worker.sentinel for worker in workers], POLL_S)
    for worker in workers:
        worker.terminate()
    until = time.monotonic() + options.workers_kill_timeout
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
        if worker.is_alive():
            worker.kill()
            worker.join()
    return 0 if stopping else 1


if __name__ == "__main__":
    raise SystemExit(main())
