"""Safe file operations in folders that anybody may write to.

Only small regular files are read, and symbolic links are not followed. Every call uses the
descriptor of a folder that was opened once, so that the folder cannot be exchanged by name.
"""

import fcntl
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import UUID

MAX_FILE_BYTES: Final = 65_536
MAX_NAME_BYTES: Final = 200
ID_FILE: Final = ".gatebook"  # identifies the folder: a UUID and its owner
LOCK_FILE: Final = ".gatebook-lock"
_TEMPORARY_SUFFIXES: Final = (".tmp", ".part", "~")
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileRefused(Exception):
    """A name or file is rejected. The message is a predicate that follows the name."""


class FileChanging(Exception):
    """The file is being written or has disappeared. Retry later."""


@contextmanager
def open_folder(name: str, parent: int | None = None) -> Iterator[int]:
    """Open a folder and yield its descriptor.

    Raises Refused if it is no folder; below `parent`, also if it is a symbolic link.
    """
    try:
        # The folder named by the operator may be a symbolic link; folders below it may not.
        folder = os.open(
            name,
            _FOLDER_FLAGS if parent is not None else _FOLDER_FLAGS & ~os.O_NOFOLLOW,
            dir_fd=parent,
        )
    except OSError as error:
        raise FileRefused(f"cannot be opened as a folder ({error.strerror})") from error
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def lock_folder(folder: int) -> Iterator[None]:
    """Lock a folder against other filedrop processes. Raises Refused if it is locked."""
    try:
        lock = os.open(
            LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
    except OSError as error:
        raise FileRefused(f"cannot be locked ({error.strerror})") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileRefused("is in use by another filedrop") from error
        yield
    finally:
        os.close(lock)


def ensure_folder_id(folder: int, owner: UUID) -> UUID:
    """Return the mark of a folder, created if missing; recreated folders differ.

    Raises Refused if the folder is marked for another owner.
    """
    try:
        mark, _, marked_owner = (
            read_small_file(folder, ID_FILE).decode("ascii").strip().partition(" ")
        )
        if UUID(marked_owner) != owner:
            raise FileRefused("belongs to another project")
        return UUID(mark)
    except FileChanging:
        new_mark = uuid.uuid4()
        write_file(folder, ID_FILE, f"{new_mark} {owner}\n".encode())
        sync_folder(folder)
        return new_mark
    except ValueError as error:
        raise FileRefused(
            f"has an invalid {ID_FILE}; remove it, and the messages are written again"
        ) from error


def list_message_names(folder: int) -> list[str]:
    """List names of possible messages in order, without hidden or unfinished files."""
    names = sorted(os.listdir(folder), key=os.fsencode)
    return [
        name
        for name in names
        if not name.startswith(".") and not name.endswith(_TEMPORARY_SUFFIXES)
    ]


def check_file_name(name: str) -> None:
    """Raise Refused for a name that is too long or could deceive a reader."""
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        raise FileRefused(f"has a name of more than {MAX_NAME_BYTES} bytes")
    if not name.isprintable():
        raise FileRefused("has a name that is not printable")


def has_name(folder: int, name: str) -> bool:
    """Return whether the name exists in the folder."""
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def read_small_file(folder: int, name: str) -> bytes:
    """Return the content of a regular file.

    Raises Refused for anything else, FileChanging if the file changes or has disappeared.
    """
    try:
        file = os.open(name, _READ_FLAGS, dir_fd=folder)
    except FileNotFoundError as error:
        raise FileChanging(name) from error
    except OSError as error:
        kind = (
            "is a symbolic link" if _is_link(folder, name) else f"cannot be read ({error.strerror})"
        )
        raise FileRefused(kind) from error
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise FileRefused("is not a regular file")
        if before.st_nlink > 1:
            raise FileRefused("has another name (a hard link)")
        if before.st_size > MAX_FILE_BYTES:
            raise FileRefused(f"is larger than {MAX_FILE_BYTES:,} bytes")
        content = b""
        while part := os.read(file, MAX_FILE_BYTES + 1 - len(content)):
            content += part
        after = os.fstat(file)
    finally:
        os.close(file)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or len(
        content
    ) != after.st_size:
        raise FileChanging(name)
    return content


def get_file_state(folder: int, name: str) -> tuple[int, int, int] | None:
    """Return inode, size and modification time of a file; None if it does not exist."""
    try:
        status = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def write_file(folder: int, name: str, content: bytes) -> None:
    """Write a file atomically, replacing the name. It is durable after `sync_folder`."""
    temporary_name = f".{name}.tmp"[:250]
    with suppress(FileNotFoundError):
        os.unlink(temporary_name, dir_fd=folder)  # left by a run that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary_name, flags, 0o644, dir_fd=folder)
    try:
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(file, remaining) :]
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)


def sync_folder(folder: int) -> None:
    """Make writes and renames in a folder durable."""
    os.fsync(folder)


def move_to_done(folder: int, name: str, fallback_name: str) -> None:
    """Move a file into `done/`, renamed to `fallback_name` if its name is taken there."""
    with suppress(FileExistsError):
        os.mkdir("done", 0o755, dir_fd=folder)
    with open_folder("done", folder) as done_folder:
        target = fallback_name if has_name(done_folder, name) else name
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=done_folder)
        sync_folder(done_folder)
    sync_folder(folder)


def is_same_folder(folder: int, name: str, parent: int) -> bool:
    """Return whether the name still refers to the open folder."""
    try:
        named_status = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    current = os.fstat(folder)
    return (named_status.st_dev, named_status.st_ino) == (current.st_dev, current.st_ino)


def _is_link(folder: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    return False
