"""Stored files are unpacked to search them: three deep, damaged ones too, and within a limit."""

import gzip
import io
import zipfile

import pytest

from erasure.erasure_files import UnpackLimit, read_unpacked

pytestmark = pytest.mark.once
WORD = b"ada@example.org"


def pack(**members: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return archive.getvalue()


def unpack(content: bytes, most: int = 1 << 20) -> tuple[bytes, int]:
    """Return all that is read, and what is left of the limit."""
    limit = UnpackLimit(most)
    return b"".join(read_unpacked(io.BytesIO(content), limit)), limit.left


def test_words_are_read_three_deep_and_no_deeper() -> None:
    content = WORD
    for depth in range(1, 5):
        content = pack(letter=content) if depth % 2 else gzip.compress(content)
        assert WORD not in content
        assert (WORD in unpack(content)[0]) == (depth <= 3)


def test_what_was_unpacked_of_a_damaged_file_is_read() -> None:
    content = gzip.compress(WORD * 20_000 + bytes(range(256)) * 4000)
    assert WORD in unpack(content[:-4000])[0]
    assert unpack(b"\x1f\x8b" + bytes(40))[1] == 1 << 20
    assert unpack(b"PK\x05\x06" + bytes(18))[1] == 1 << 20


def test_bombs_of_many_members_and_of_one_stop_at_the_limit() -> None:
    zeros = bytes(1 << 20)
    for bomb in (
        pack(**{f"m{number}": zeros for number in range(40)}),
        gzip.compress(zeros * 40),
        gzip.compress(pack(a=zeros * 20, b=gzip.compress(zeros * 20))),
    ):
        assert len(bomb) < 1 << 17
        read, left = unpack(bomb, 3 << 20)
        assert left == 0
        assert len(read) < 4 << 20
