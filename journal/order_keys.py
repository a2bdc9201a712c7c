"""Order keys of facts: commands first, then sequence, source and id.

Facts without a producer's sequence number come last. A command was accepted by compare-and-set, so
no later report may replace it, whatever its id. Arrival never counts: the same facts must give the
same state in every order of delivery. Where the latest fact is kept instead of the first, commands
come last, in the journal's order, in which they were accepted. Keys are text, compared by code
point in Python only, because databases have different collations.
"""

NO_SEQUENCE = "~"  # sorts after every digit
_PERSON = "!"  # sorts before every lane: people decide last, knowing everything
_HOST = "="  # a code host's confirmation: compared with its own kind only
# No name or id contains a control character, so no two facts share a key. It sorts before them all.
SEPARATOR = "\t"


def make_order_key(lane: str, producer_seq: int | None, source: str, event_id: str) -> str:
    """Return a fact's order key, smaller is earlier; producer_seq 0 to 2^63-1 or None."""
    rank = "0" if lane == "command" else "1"
    sequence = NO_SEQUENCE if producer_seq is None else f"{producer_seq:019d}"
    return SEPARATOR.join((rank, sequence, source, event_id))


def make_latest_key(
    lane: str, position: int, producer_seq: int | None, source: str, event_id: str
) -> str:
    """Return the order key where the latest fact is kept; `position`: of its entry."""
    if lane == "command":
        return SEPARATOR.join(("2", f"{position:019d}", source, event_id))
    return make_order_key(lane, producer_seq, source, event_id)


def make_resolution_key(attempt: int, position: int, source: str, event_id: str) -> str:
    """Return the order key of a person's resolution, before all other facts.

    Of two resolutions the greater key is the later: by attempt, then by position.
    """
    return SEPARATOR.join((_PERSON, f"{attempt:019d}", f"{position:019d}", source, event_id))


def make_confirmation_key(attempt: int, position: int) -> str:
    """Return the order key of a code host's confirmation or its withdrawal.

    Of two the greater key is the later: only Gatebook writes them, in the order of positions.
    """
    return SEPARATOR.join((_HOST, f"{position:019d}", f"{attempt:019d}"))


def attempt_of_confirmation(mark: str) -> int:
    """Return the attempt of a confirmation's order key; 0 for no mark."""
    return int(mark.split(SEPARATOR, 2)[2]) if mark else 0


def make_given_up_key(event_id: str) -> str:
    """Return the order key of Gatebook's own "outcome unknown", after all other facts."""
    return make_order_key("evidence", None, NO_SEQUENCE, event_id)


def is_resolution_mark(mark: str) -> bool:
    """True for the order key of a person's resolution."""
    return mark[:1] == _PERSON


def attempt_of_resolution(mark: str) -> int:
    """Return the attempt of a person's resolution; 0 for any other mark and for none."""
    return int(mark.split(SEPARATOR, 2)[1]) if is_resolution_mark(mark) else 0


def position_of_resolution(mark: str) -> int:
    """Return the position of a person's resolution; 0 for any other mark and for none."""
    return int(mark.split(SEPARATOR, 3)[2]) if is_resolution_mark(mark) else 0


def is_command_mark(mark: str) -> bool:
    """True for the order key of a command, False for a report's and for none."""
    return mark[:1] in ("0", "2")


def is_earlier_mark(mark: str, other: str) -> bool:
    """True if `mark` wins where the first fact is kept; empty means no mark."""
    return bool(mark) and (not other or mark < other)
