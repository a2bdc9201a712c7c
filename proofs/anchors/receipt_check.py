"""Compares the rows of Anchor with what the anchors hold, which shows forged and deleted rows.

Files, git remotes and the cosignatures of witnesses can be read. What syslog and webhooks took,
only their receivers know.
"""

import mmap
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from proofs.anchors.git import hide_credentials, read_published_commits
from proofs.anchors.published_head import AnchorFailed, AnchorTarget, iterate_notes
from proofs.anchors.witness import find_cosignature, parse_witness_key
from proofs.models import Anchor, TreeHead


class AnchoredHead(NamedTuple):
    """A tree head that an anchor took, by its row."""

    number: int
    size: int
    note: str
    receipt: dict[str, Any]


class ReceiptCheck(NamedTuple):
    """How the rows of one anchor compare with what it holds."""

    compared: int
    uncompared: int  # of another place, or of a kind that cannot be read
    faults: list[str]


def check_receipts(target: AnchorTarget) -> ReceiptCheck:
    """Compare the rows of an anchor with what it holds. Raises AnchorFailed."""
    rows = Anchor.objects.filter(name=target.name, error="").select_related("tree_head")
    check, place = _CHECKS.get(target.kind), _PLACES.get(target.kind)
    if check is None or place is None:
        return ReceiptCheck(0, rows.count(), [])
    of_place, counts = place(target).items(), Counter[bool]()

    def read_heads() -> Iterator[AnchoredHead]:
        for row in rows.order_by("tree_head").iterator(2_000):
            head, receipt = row.tree_head, _parse(row.receipt)
            counts[of_place <= receipt.items()] += 1
            if of_place <= receipt.items():
                yield AnchoredHead(head.id, head.size, head.note, receipt)

    faults = list(check(target, read_heads()))
    return ReceiptCheck(counts[True], counts[False], faults)


def _parse(receipt: str) -> dict[str, Any]:
    try:
        facts = orjson.loads(receipt)
    except orjson.JSONDecodeError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _check_file(target: AnchorTarget, heads: Iterable[AnchoredHead]) -> Iterator[str]:
    """Yield heads that are not in the file, and those in the file that have no row."""
    try:
        with Path(target.address).open("rb") as file:
            is_empty = not file.seek(0, 2)
            content = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise AnchorFailed(f"{target.address} cannot be read: {error.strerror}.") from error
    starts = set[int]()
    for head in heads:
        note, start = head.note.encode(), head.receipt.get("offset")
        if not isinstance(start, int) or start < 0 or content[start : start + len(note)] != note:
            yield f"{target.address} does not hold tree head {head.number} at byte {start}"
        else:
            starts.add(start)
    origin, end = _load_origin(), max(starts, default=len(content))
    newest = _load_newest_head()
    for place in iterate_notes(content):
        if place.origin != origin or place.start in starts:
            continue
        of_place = f"the tree head of {place.size} entries at byte {place.start}"
        if place.start < end:
            yield f"no row says that {target.address} holds {of_place}"
        elif place.size > newest.size:
            yield f"this database does not have {of_place} of {target.address}"
        # else the next publication writes its row again


def _check_git(target: AnchorTarget, heads: Iterable[AnchoredHead]) -> Iterator[str]:
    """Yield heads that the branch does not have, and commits of heads that the database lacks."""
    remote = hide_credentials(target.address)
    commits = read_published_commits(target, _load_origin())
    recorded = set[str]()
    for head in heads:
        commit = str(head.receipt.get("commit"))
        if commits.get(commit) != f"Tree head {head.number}: {head.size} entries":
            yield f"{remote} does not hold tree head {head.number} as commit {commit[:12]}"
        else:
            recorded.add(commit)
    is_recorded, newest = not recorded, _load_newest_head()
    for commit, subject in commits.items():  # the newest first
        is_recorded |= commit in recorded
        number = _HEAD_NUMBER.match(subject)
        if is_recorded and commit not in recorded:
            yield f"no row says that {remote} holds commit {commit[:12]}: {subject}"
        elif number is not None and int(number[1]) > newest.id:
            yield f"this database does not have {subject} of commit {commit[:12]} of {remote}"


def _check_witness(target: AnchorTarget, heads: Iterable[AnchoredHead]) -> Iterator[str]:
    """Yield heads whose cosignature the key of the witness does not verify."""
    key = parse_witness_key(target.key)
    for head in heads:
        line = str(head.receipt.get("cosignature"))
        try:
            _, cosigned_at_s = find_cosignature(key, head.note, line.encode())
        except AnchorFailed:
            cosigned_at_s = -1
        if cosigned_at_s != head.receipt.get("cosigned_at_s"):
            yield f"{key.name} did not cosign tree head {head.number} as its row says"


def _load_newest_head() -> TreeHead:
    """Return the newest tree head; read after the anchor, which holds no head before its row."""
    return TreeHead.objects.order_by("-id").first() or TreeHead(id=0, size=0)


def _load_origin() -> str:
    """Return the origin of this installation's tree heads; empty before the first one."""
    return _load_newest_head().key_name


_HEAD_NUMBER: Final = re.compile(r"Tree head (\d{1,18}):")
_CHECKS: Final[dict[str, Callable[[AnchorTarget, Iterable[AnchoredHead]], Iterator[str]]]] = {
    "file": _check_file,
    "git": _check_git,
    "witness": _check_witness,
}
# What a receipt has of the place that it is of: an anchor that moved begins again.
_PLACES: Final[dict[str, Callable[[AnchorTarget], dict[str, str]]]] = {
    "file": lambda target: {"path": str(Path(target.address))},
    "git": lambda target: {
        "remote": hide_credentials(target.address),
        "branch": target.branch,
    },
    "witness": lambda target: {"key": target.key},
}
