"""Buffers of arriving bodies and slowly read responses; large ones are in files."""

import io
import os
import tempfile
import threading
from pathlib import Path
from typing import BinaryIO, cast


class SpoolFull(Exception):
    """The files hold as many bytes as allowed."""


class ClientClosed(Exception):
    """The client is gone, so nothing can be sent to it."""


class Spool:
    """The folder of the files and the count of their bytes.

    The files have no name, so none outlives its process.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._left = most
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def open(self) -> BinaryIO:
        """Open a new file."""
        return cast(BinaryIO, tempfile.TemporaryFile(dir=self._folder, buffering=0))

    def take(self, size: int) -> None:
        """Count `size` more bytes. Raises SpoolFull."""
        with self._lock:
            if size > self._left:
                raise SpoolFull
            self._left -= size

    def give_back(self, size: int) -> None:
        """Count `size` bytes less."""
        with self._lock:
            self._left += size


class SpooledBytes:
    """Bytes in the order of `add`: the first `memory` in memory, the rest in a file."""

    def __init__(self, spool: Spool, memory: int) -> None:
        self.size = 0
        self._spool, self._memory = spool, memory
        self._first = bytearray()  # no list: a client may send single bytes
        self._file: BinaryIO | None = None
        self._in_file = 0

    def add(self, data: bytes) -> None:
        """Add `data` at the end. Raises SpoolFull, and OSError when the disk takes no more."""
        if self._file is None and self.size + len(data) <= self._memory:
            self._first += data
        else:
            self._spool.take(len(data))
            self._in_file += len(data)
            if self._file is None:
                self._file = self._spool.open()
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        self.size += len(data)

    def stream(self) -> BinaryIO:
        """Return all bytes as a stream from the start. `close` invalidates it."""
        if self._file is None:
            return io.BytesIO(self._first)
        self._file.seek(0)
        return cast(BinaryIO, io.BufferedReader(_Chain(bytes(self._first), self._file)))

    def close(self) -> None:
        """Free memory and file."""
        self._first = bytearray()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._spool.give_back(self._in_file)
        self._in_file = 0


class _Chain(io.RawIOBase):
    """Bytes in memory, and behind them those of a file."""

    def __init__(self, first: bytes, file: BinaryIO) -> None:
        self._first: memoryview | None = memoryview(first)
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer will do
        if self._first is not None:
            size = min(len(buffer), len(self._first))
            buffer[:size] = self._first[:size]
            self._first = self._first[size:] or None
            if size:
                return size
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class OutgoingContent:
    """Content of a response that a thread produces and the loop sends at its own pace."""

    def __init__(self, spool: Spool, memory: int) -> None:
        self._spool, self._memory = spool, memory
        self._lock = threading.Lock()
        self._parts: list[bytes] = []
        self._waiting = 0  # bytes in `_parts`
        self._file: BinaryIO | None = None
        self._written = self._read = 0
        self._taken = 0
        self._closed = False
        self.complete = False  # nothing is added any more

    def add(self, data: bytes) -> None:
        """Add `data` at the end. Raises SpoolFull, ClientClosed and OSError (disk full)."""
        with self._lock:
            if self._closed:
                raise ClientClosed
            if self._file is None and self._waiting + len(data) <= self._memory:
                self._parts.append(data)
                self._waiting += len(data)
                return
            self._spool.take(len(data))
            self._taken += len(data)
            if self._file is None:
                self._file = self._spool.open()
            descriptor, rest = self._file.fileno(), memoryview(data)
            while rest:
                done = os.pwrite(descriptor, rest, self._written)
                self._written += done
                rest = rest[done:]

    def take(self, most: int) -> bytes:
        """Return the next bytes, or none when no more are there yet."""
        with self._lock:
            if self._parts:
                data, self._parts, self._waiting = b"".join(self._parts), [], 0
                return data
            if self._file is None:
                return b""
            data = os.pread(self._file.fileno(), min(most, self._written - self._read), self._read)
            self._read += len(data)
            if self._read == self._written:
                self._free_file()
            return data

    def close(self) -> None:
        """Free memory and file. `add` raises ClientClosed from now on."""
        with self._lock:
            self._closed = True
            self._parts, self._waiting = [], 0
            self._free_file()

    def _free_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._written = self._read = 0
        self._spool.give_back(self._taken)
        self._taken = 0


class FileContent:
    """Content of a response from an open file, sent by the loop without a thread."""

    def __init__(self, descriptor: int, offset: int, length: int) -> None:
        self._descriptor, self._offset, self._left = descriptor, offset, length

    def take(self, most: int) -> bytes:
        """Return the next bytes, or none at the end. Raises OSError for a cut file."""
        if not self._left:
            return b""
        data = os.pread(self._descriptor, min(most, self._left), self._offset)
        if not data:
            raise OSError("a file that is sent was cut")
        self._offset += len(data)
        self._left -= len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
