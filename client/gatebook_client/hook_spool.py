"""Reports of hooks that Gatebook has not received yet, kept on disk until it has.

Each is one file, readable by its owner only, in a folder per connection. The next hook delivers
them first, oldest first. Standard library only.
"""

import fcntl
import os
import sys
import time

from gatebook_client.connections import get_state_folder, write_private_file

TYPE_CHECKING = False  # as in typing, which takes long to load
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_REPORTS = 5_000
MAX_BYTES = 64 * 1024 * 1024
MAX_DELIVERIES = 50  # by one hook
_REFUSED = ".refused"


class SpoolFull(OSError):
    """The spool holds as many reports as it may; this one was not kept."""


def get_spool_folder(url: str, connection: str) -> str:
    """Return the folder of the reports for one Gatebook and one connection."""
    name = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-.") else f"%{ord(letter):x}"
        for letter in f"{url.rstrip('/')} {connection}"
    )
    return f"{get_state_folder()}/hooks/{name[-200:]}"


def store_report(folder: str, path: str, body: bytes) -> None:
    """Keep a report that is to be sent to `path`. Raises OSError, and SpoolFull at the limits."""
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    with os.scandir(folder) as entries:
        sizes = [entry.stat().st_size for entry in entries if entry.name.endswith(".report")]
    if len(sizes) >= MAX_REPORTS or sum(sizes) + len(body) > MAX_BYTES:
        raise SpoolFull(f"{folder} is full: {len(sizes)} reports, {sum(sizes)} bytes")
    name = f"{time.time_ns():020d}-{os.getpid()}.report"
    write_private_file(f"{folder}/{name}", path.encode() + b"\n" + body)


def list_reports(folder: str) -> list[str]:
    """Return the names of the files of the reports, oldest first."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".report"))  # noqa: PTH208
    except FileNotFoundError:
        return []


def deliver_reports(folder: str, send: "Callable[[str, bytes], int]") -> bool:
    """Send what is kept, and return whether nothing is left.

    `send` gets path and body and returns the HTTP status; its exceptions end the delivery. Only one
    process at a time delivers; another one returns at once. What Gatebook refuses for good is set
    aside in the same folder.
    """
    names = list_reports(folder)
    if not names:
        return True
    descriptor = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        for name in list_reports(folder)[:MAX_DELIVERIES]:
            file_path = f"{folder}/{name}"
            with open(file_path, "rb") as file:  # noqa: PTH123
                path, _, body = file.read().partition(b"\n")
            status = send(path.decode(), body)
            if 200 <= status < 300:
                os.unlink(file_path)  # noqa: PTH108
            elif status in (400, 404, 409, 413, 422):
                os.replace(file_path, file_path.removesuffix(".report") + _REFUSED)  # noqa: PTH105
            else:
                return False
        return not list_reports(folder)
    finally:
        os.close(descriptor)


def print_warning(sentence: str) -> None:
    """Print a sentence about reports on standard error."""
    sys.stderr.write(f"gatebook: {sentence}\n")
