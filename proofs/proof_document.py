"""Proof files: entries with their inclusion proofs under one tree head, for the verifier.

docs/reference/proofs.md describes the form. The head comes with its keys, so that a file proves
itself to a reader who compares the key with one that they got another way.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

import orjson

from journal import imported_entries
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from proofs.inclusion import (
    PathBuilder,
    load_first_head,
    load_first_head_of_key,
    preload_tiles,
)
from proofs.leaf import LEAF_FIELDS, build_leaf
from proofs.merkle import build_consistency_proof
from proofs.models import Anchor, SealedEntry, SigningKey, TreeHead
from proofs.signed_note import format_verifier_key
from proofs.signing_keys import find_chain_end, load_signing_keys, to_note_key

FORMAT: Final = "gatebook.proof"
VERSION: Final = 1


def load_covering_head(last_position: int) -> TreeHead | None:
    """Return the first head that covers all sealed entries up to a position.

    It stays the same, so that the same export gives the same proofs. The newest head where the last
    of these entries waits for one; None if there is none.
    """
    sealed = SealedEntry.objects.filter(entry__lte=last_position).order_by("-entry_id")
    last = sealed.values_list("log_index", flat=True).first()
    head = None if last is None else load_first_head(last)
    return head or TreeHead.objects.order_by("-id").first()


def describe_head(head: TreeHead) -> dict[str, Any]:
    """Return the head of a proof file: note, number, keys, anchors.

    Two queries, and those of `_describe_extension`. Receipts of anchors name places inside the
    installation, so they are left out.
    """
    keys = load_signing_keys()
    anchors = Anchor.objects.filter(tree_head=head, error="").order_by("name")
    return {
        "format": FORMAT,
        "version": VERSION,
        "origin": head.key_name,
        "head_number": head.id,
        "head": head.note,
        "keys": [format_verifier_key(to_note_key(key)) for key in keys],
        "endorsements": [key.endorsement for key in keys if key.endorsement],
        "extended_by": _describe_extension(head, keys),
        "anchors": list(anchors.values("name", "kind", "anchored_at_us")[:100]),
    }


def _describe_extension(head: TreeHead, keys: Sequence[SigningKey]) -> dict[str, Any] | None:
    """Return the first head of the last key that the key of `head` leads to, and that it extends.

    It lets a reader who trusts only that later key check `head`. None if `head` is signed by it, or
    no such head is signed. Two queries, and those of the tiles.
    """
    end = find_chain_end(keys, head.key_id)
    if end is None or end.key_id == head.key_id:
        return None
    later = load_first_head_of_key(end)
    if later is None or later.size < head.size:
        return None
    proof = build_consistency_proof(head.size, later.size, preload_tiles([], later.size))
    return {
        "head_number": later.id,
        "head": later.note,
        "proof": [digest.hex() for digest in proof],
    }


def prove_entries(head: TreeHead, entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Yield the rows of entries that `head` covers. Two queries.

    Text and salt are those of entries loaded with `select_related("body")`; others withhold them.
    """
    positions = [entry.position for entry in entries]
    sealed = dict(
        SealedEntry.objects.filter(entry__in=positions, log_index__lt=head.size).values_list(
            "entry", "log_index"
        )
    )
    indexes = sorted(sealed.values())
    paths = PathBuilder(head.size, preload_tiles(indexes, head.size))
    for entry in entries:
        if entry.position not in sealed:
            continue
        index = sealed[entry.position]
        row = {
            "position": entry.position,
            "log_index": index,
            "entry": build_leaf(read_leaf_values(entry)),
            "salt": None,
            "text": None,
            "proof": [digest.hex() for digest in paths.build_path(index)],
        }
        if "body" not in entry._state.fields_cache:
            yield withhold_text(row)
            continue
        body = getattr(entry, "body", None)
        yield row if body is None else row | {"salt": bytes(body.salt).hex(), "text": body.text}


def withhold_text(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without text and salt; its leaf still has the commitment."""
    return row | {"salt": None, "text": None, "withheld": True}


def read_leaf_values(entry: Entry) -> dict[str, Any]:
    """Return the columns of an entry that its leaf has, by the names of its fields."""
    return {name: entry.event_id if name == "id" else getattr(entry, name) for name in LEAF_FIELDS}


def load_erasing_entries(erased: Sequence[Entry]) -> dict[int, Entry]:
    """Return the entry that records the erasure or expiry of each of these, by position.

    Two queries for 500 of them, and one for each bundle that some were imported from.
    """
    executed: dict[int, Entry] = {}
    for start in range(0, len(erased), 500):
        part = erased[start : start + 500]
        facts = {f'{{"entry":{entry.position}}}': entry.position for entry in part}
        rows = Entry.objects.filter(
            IS_OF_A_RARE_KIND,
            project__in={entry.project for entry in part},
            kind="erasure.executed",
            lane="system",
            facts__in=list(facts),
        )
        executed |= {facts[row.facts]: row for row in rows.select_related("body")}
        executed |= _load_imported_erasures(
            [entry for entry in part if imported_entries.is_imported_source(entry.source)]
        )
        expired = {
            entry.position: entry.erasure.expired_by for entry in part if entry.erasure.expired_by
        }
        named = Entry.objects.select_related("body").in_bulk(set(expired.values()))
        executed |= {at: named[by] for at, by in expired.items() if by in named}
    return executed


def _load_imported_erasures(erased: Sequence[Entry]) -> dict[int, Entry]:
    """Return the imported entry that records each erasure: it names the position at its origin."""
    places: dict[tuple[UUID, str], dict[int, int]] = {}
    for entry in erased:
        bundle = imported_entries.read_bundle_prefix(entry.source)
        origin = int(orjson.loads(entry.facts)["origin"]["position"])
        places.setdefault((entry.project, bundle), {})[origin] = entry.position
    executed: dict[int, Entry] = {}
    for (project, bundle), positions in places.items():
        rows = Entry.objects.filter(
            IS_OF_A_RARE_KIND,
            project=project,
            kind="erasure.executed",
            lane="system",
            source__startswith=bundle,
        )
        for row in rows.select_related("body"):
            at = positions.get(orjson.loads(row.facts).get("entry"))
            if at is not None:
                executed[at] = row
    return executed
