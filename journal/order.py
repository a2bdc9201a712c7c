"""The order of facts about one thing: commands first, then by the producer's sequence (none last), source, and id.

A command was accepted by compare-and-set, so no later report may take its place, whatever its id. Arrival never counts:
that is the order of delivery, and the same facts must give the same state however they were delivered. Where not the
first but the latest word stands, commands come last, in the order of the book: that order they were accepted in.
The key is text, compared by code point in Python only (databases collate as they please).
"""

NO_SEQUENCE = "~"  # sorts after every digit
_PERSON = "!"  # sorts before every lane: people speak last, with all of it in sight
SEPARATOR = "\t"  # no name or id holds a control character, so no two facts share a key; and it sorts before them all


def order_key(lane: str, producer_seq: int | None, source: str, event_id: str) -> str:
    """Return the order key of a fact; smaller is earlier. `producer_seq` is 0 to 2^63 - 1 or None."""
    rank = "0" if lane == "command" else "1"
    sequence = NO_SEQUENCE if producer_seq is None else f"{producer_seq:019d}"
    return SEPARATOR.join((rank, sequence, source, event_id))


def latest_key(
    lane: str, position: int, producer_seq: int | None, source: str, event_id: str
) -> str:
    """Return the order key for what the latest fact keeps; greater is later. `position` is that of the entry."""
    if lane == "command":
        return SEPARATOR.join(("2", f"{position:019d}", source, event_id))
    return order_key(lane, producer_seq, source, event_id)


def person_key(attempt: int, position: int, source: str, event_id: str) -> str:
    """Return the order key of a person's word on an attempt, kept at `position`: before every command and report.

    Of two such words the greater is the later: that on the later attempt, or the one that was given later.
    """
    return SEPARATOR.join((_PERSON, f"{attempt:019d}", f"{position:019d}", source, event_id))


def given_up_key(event_id: str) -> str:
    """Return the order key of Gatebook's own "nobody knows, and nobody waits any more": after every word of others."""
    return order_key("evidence", None, NO_SEQUENCE, event_id)


def is_of_a_person(mark: str) -> bool:
    """True for the order key of a person's word."""
    return mark[:1] == _PERSON


def attempt_of(mark: str) -> int:
    """The attempt that a person's word is about; 0 for any other mark and for none."""
    return int(mark.split(SEPARATOR, 2)[1]) if is_of_a_person(mark) else 0


def position_of(mark: str) -> int:
    """Where a person's word stands in the journal; 0 for any other mark and for none."""
    return int(mark.split(SEPARATOR, 3)[2]) if is_of_a_person(mark) else 0


def is_of_a_command(mark: str) -> bool:
    """True for the order key of a command, False for that of a report or for none."""
    return mark[:1] in ("0", "2")


def earlier(mark: str, other: str) -> bool:
    """True when the mark `one` wins a register that the first fact keeps; an empty mark is none."""
    return bool(mark) and (not other or mark < other)
