"""The canonical bytes of a leaf are those of RFC 8785."""

from uuid import UUID

import pytest
import rfc8785

from proofs import leaf

pytestmark = pytest.mark.once
COLUMNS = {
    "actor": "agent:7",
    "attempt": None,
    "body_commit": b"\xab" * 32,
    "claimed_source": "",
    "effect": UUID(int=1),
    "facts": '{"a":1}',
    "id": "key 1",
    "kind": "effect.planned",
    "lane": "command",
    "lease_epoch": 0,
    "occurred_us": 2**53,
    "producer_seq": -(2**63),
    "project": UUID(int=2**127),
    "received_us": 2**53 - 1,
    "schema_version": 1,
    "session": None,
    "source": "robot",
    "subject": UUID(int=3).hex,
}


def test_a_leaf_is_the_canonical_object_of_its_columns() -> None:
    built = leaf.build_leaf(COLUMNS)
    assert list(built) == sorted(built) == list(leaf.LEAF_FIELDS)
    assert built | {"facts": ""} == {
        **COLUMNS,
        "body_commit": "ab" * 32,
        "effect": "00000000-0000-0000-0000-000000000001",
        "occurred_us": "9007199254740992",
        "producer_seq": "-9223372036854775808",
        "project": "80000000-0000-0000-0000-000000000000",
        "subject": "00000000-0000-0000-0000-000000000003",
        "facts": "",
    }
    assert leaf.encode_leaf(COLUMNS) == rfc8785.dumps(built)


def test_every_character_is_escaped_as_in_rfc_8785() -> None:
    characters = [chr(code) for code in range(0x2100)] + ["\ue000", "\uffff", "\U0001f600"]
    text = "".join(characters)
    data = leaf.encode_leaf({**COLUMNS, "facts": text, "source": text[::-1]})
    assert data == rfc8785.dumps(leaf.build_leaf({**COLUMNS, "facts": text, "source": text[::-1]}))


@pytest.mark.parametrize(
    "spelling",
    ["00000000-0000-0000-0000-000000000003", "A" * 32, f"{{{'3' * 30}}}", "3", b"3" * 32],
)
@pytest.mark.parametrize("name", ["effect", "project", "session", "subject"])
def test_a_uuid_with_another_spelling_makes_no_leaf(name: str, spelling: object) -> None:
    with pytest.raises(ValueError, match=f"its {name} is not written as 32 lower-case"):
        leaf.build_leaf({**COLUMNS, name: spelling})
