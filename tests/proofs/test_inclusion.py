"""Inclusion proofs from stored tiles: the first head that covers an entry, and many at once."""

import pytest

from journal import entries
from proofs import inclusion, merkle, tree_store
from proofs.models import TreeHead
from tests.journal.drafts import NOW_US, draft, new_project
from tests.proofs.sealing import hash_entries, seal_entries

pytestmark = pytest.mark.django_db


def test_an_entry_is_proved_under_the_first_head_that_covers_it() -> None:
    project = new_project()
    items = [draft(f"e{n}", project=project) for n in range(530)]
    results = entries.append_entries(items, NOW_US)
    positions = [result.position for result in results]
    heads: list[TreeHead] = []
    for size in (1, 1, 2, 3, 255, 257, 513, 520):
        assert inclusion.load_inclusion(positions[size - 1]) is None or heads[-1].size >= size
        heads.append(seal_entries(size))
    hashes = hash_entries()
    for index in (0, 1, 2, 100, 254, 255, 256, 257, 511, 512, 519):
        proof = inclusion.load_inclusion(positions[index])
        assert proof is not None
        first = next(head for head in heads if head.size > index)
        assert (proof.head, proof.size, proof.log_index) == (first, first.size, index)
        root = bytes(first.root)
        assert merkle.verify_inclusion(hashes[index], index, first.size, proof.path, root)
        newest = inclusion.load_inclusion(positions[index], heads[-1])
        assert newest is not None
        builder = inclusion.PathBuilder(520, tree_store.load_tile)
        assert newest.path == builder.build_path(index)
    assert inclusion.load_inclusion(positions[520]) is None  # not sealed
    assert inclusion.load_inclusion(positions[519], heads[0]) is None
