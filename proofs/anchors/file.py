"""Anchor: an append-only file, one signed note a block, each followed by an empty line.

A note that could not be written whole is cut off again. Where the file refuses that (chattr +a),
empty lines end it, and readers skip it: `find_notes` finds whole notes only.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from proofs.anchors.published_head import (
    AnchorContradicts,
    AnchorFailed,
    AnchorTarget,
    LastReceipt,
    PublishedHead,
    TreeReader,
    find_notes,
    refuse_other_history,
    write_receipt,
)

_TAIL_BYTES: Final = 65_536  # searched for the last note of this installation


def publish_to_file(
    target: AnchorTarget,
    heads: Sequence[PublishedHead],
    last: LastReceipt | None,
    tree: TreeReader,
) -> Iterator[str]:
    """Append the notes of `heads`; yield a receipt for each as soon as it is on the disk.

    Raises AnchorFailed where the file cannot be written, or no longer holds what it held.
    """
    path = Path(target.address)
    with _opened(path, makes_folder=target.makes_folder) as descriptor:
        recorded_end = _check_last_note(path, descriptor, last)
        size = os.fstat(descriptor).st_size
        begin = max(size - _TAIL_BYTES, 0)
        tail = os.pread(descriptor, _TAIL_BYTES, begin)
        notes = find_notes(tail)
        # Written before a crash that lost their receipts.
        unrecorded = [note for note in notes if begin + note.start >= recorded_end]
        for head in heads:
            note = head.note.encode()
            if unrecorded and unrecorded[0].text == head.note:
                offset = begin + unrecorded.pop(0).start
            else:
                refuse_other_history(str(path), notes, head, tree)
                torn = b"" if not tail or tail.endswith(b"\n\n") else b"\n\n"
                _append(path, descriptor, torn + note + b"\n")
                offset = size + len(torn)
                size = offset + len(note) + 1
                tail = note + b"\n"
                notes = find_notes(note)
            yield write_receipt(path=str(path), offset=offset, bytes=len(note))


def find_file_faults(target: AnchorTarget) -> list[str]:
    """Return why the file cannot be an anchor."""
    path = Path(target.address)
    if not path.is_absolute():
        return [f"{target.address} is not an absolute path. Write one, as file:/srv/anchors/heads"]
    if path.is_dir():
        return [f"{path} is a folder. Name a file in it, as file:{path}/heads"]
    return []


@contextmanager
def _opened(path: Path, *, makes_folder: bool) -> Iterator[int]:
    """Open the file for appending, locked against other processes; create it if missing."""
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise AnchorFailed(
            f"{path} cannot be opened for appending: {error.strerror}. Make it and its folder "
            "writable for Gatebook, or name another file in GATEBOOK_ANCHORS."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AnchorFailed(f"{path} is locked by another process. It is tried again.") from (
                error
            )
        if is_new:
            _sync_parent(path)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_last_note(path: Path, descriptor: int, last: LastReceipt | None) -> int:
    """Return where the last note with a receipt ends, 0 for none.

    Raises AnchorContradicts where the file lost that note.
    """
    if last is None or last.receipt.get("path") != str(path):
        return 0
    note, offset = last.note.encode(), int(last.receipt["offset"])
    if os.pread(descriptor, len(note), offset) != note:
        raise AnchorContradicts(
            f"{path} no longer holds tree head {last.number} at byte {offset}: "
            "somebody changed, cut or replaced it. Put the file back; to begin another, name "
            "another file in GATEBOOK_ANCHORS."
        )
    return offset + len(note)


def _append(path: Path, descriptor: int, block: bytes) -> None:
    """Write a block and wait for the disk; a failed write leaves nothing behind if it can."""
    size = os.fstat(descriptor).st_size
    try:
        written = 0
        while written < len(block):
            written += os.write(descriptor, block[written:])
        os.fsync(descriptor)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise AnchorFailed(
            f"{path} cannot be written: {error.strerror}. Make room on its disk, or name another "
            "file in GATEBOOK_ANCHORS."
        ) from error


def _sync_parent(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
