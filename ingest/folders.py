"""Files in folders that anybody may write to: nothing is followed, nothing is read that is not a plain small file.

Every call goes through the descriptor of a folder that was opened once, so that no name can be changed under our feet.
"""

import fcntl
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import UUID

MOST_BYTES: Final = 65_536
MOST_NAME_BYTES: Final = 200
MARK: Final = ".gatebook"  # what makes a folder the one it is: a UUID
LOCK: Final = ".gatebook-lock"
_UNFINISHED: Final = (".tmp", ".part", "~")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Refused(Exception):
    """This name or file is not taken. The message says why, to follow upon its name."""


class Unsettled(Exception):
    """The file is being written, or went away: look again later."""


@contextmanager
def opened(name: str, parent: int | None = None) -> Iterator[int]:
    """The descriptor of a folder. Raises Refused for what is none; below `parent`, for a symbolic link too."""
    try:
        # The folder that an operator names may well be a link; what lies in it may not.
        folder = os.open(name, _FOLDER if parent is not None else _FOLDER & ~os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        raise Refused(f"is no folder that can be opened ({error.strerror})") from error
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def alone(folder: int) -> Iterator[None]:
    """Keep every other process that asks the same out of a folder. Raises Refused when one is in it."""
    try:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError as error:
        raise Refused(f"cannot be locked ({error.strerror})") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused("is in the hands of another filedrop") from error
        yield
    finally:
        os.close(lock)


def mark_of(folder: int, owner: UUID) -> UUID:
    """The mark of a folder, made when it has none. A folder that was made anew has another.

    Raises Refused when the folder is marked for another owner than this one.
    """
    try:
        mark, _, of = read(folder, MARK).decode("ascii").strip().partition(" ")
        if UUID(of) != owner:
            raise Refused("belongs to another project")
        return UUID(mark)
    except Unsettled:
        made = uuid.uuid4()
        write(folder, MARK, f"{made} {owner}\n".encode())
        settle(folder)
        return made
    except ValueError as error:
        raise Refused(f"has a {MARK} that is no mark; remove it, and its files are written again") from error


def names_in(folder: int) -> list[str]:
    """The names that may be messages, in their order: neither hidden nor said to be unfinished."""
    names = sorted(os.listdir(folder), key=os.fsencode)
    return [name for name in names if not name.startswith(".") and not name.endswith(_UNFINISHED)]


def check_name(name: str) -> None:
    """Raise Refused for a name that a reader could be deceived by."""
    if len(os.fsencode(name)) > MOST_NAME_BYTES:
        raise Refused(f"has a name of more than {MOST_NAME_BYTES} bytes")
    if not name.isprintable():
        raise Refused("has a name that is not printable")


def is_there(folder: int, name: str) -> bool:
    """Whether anything has this name."""
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def read(folder: int, name: str) -> bytes:
    """The content of a plain file. Raises Refused for anything else, Unsettled for what changes or is gone."""
    try:
        file = os.open(name, _PLAIN, dir_fd=folder)
    except FileNotFoundError as error:
        raise Unsettled(name) from error
    except OSError as error:
        kind = "is a symbolic link" if _is_link(folder, name) else f"cannot be read ({error.strerror})"
        raise Refused(kind) from error
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise Refused("is no plain file")
        if before.st_nlink > 1:
            raise Refused("has a second name elsewhere (a hard link)")
        if before.st_size > MOST_BYTES:
            raise Refused(f"is larger than {MOST_BYTES:,} bytes")
        content = b""
        while part := os.read(file, MOST_BYTES + 1 - len(content)):
            content += part
        after = os.fstat(file)
    finally:
        os.close(file)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or len(content) != after.st_size:
        raise Unsettled(name)
    return content


def looks(folder: int, name: str) -> tuple[int, int, int] | None:
    """What changes when a file does; None when it is gone."""
    try:
        found = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def write(folder: int, name: str, content: bytes) -> None:
    """Write a file whole or not at all; it lasts once the folder is settled. Whoever had the name loses it."""
    passing = f".{name}.tmp"[:250]
    with suppress(FileNotFoundError):
        os.unlink(passing, dir_fd=folder)  # of a run that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(passing, flags, 0o644, dir_fd=folder)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(passing, name, src_dir_fd=folder, dst_dir_fd=folder)


def settle(folder: int) -> None:
    """Let what was written and renamed in a folder outlast a loss of power."""
    os.fsync(folder)


def put_away(folder: int, name: str, under: str) -> None:
    """Move a file into `done/`, as `under` where its own name is taken there."""
    with suppress(FileExistsError):
        os.mkdir("done", 0o755, dir_fd=folder)
    with opened("done", folder) as done:
        target = under if is_there(done, name) else name
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=done)
        settle(done)
    settle(folder)


def is_still(folder: int, name: str, parent: int) -> bool:
    """Whether the open folder is the one that the name means now: in one that was removed every file is absent."""
    try:
        named = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    mine = os.fstat(folder)
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)


def _is_link(folder: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    return False
