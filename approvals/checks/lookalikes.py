"""Names that look like others: confusable letters, near names, and names that are used first.

The names of a request are compared with the names that earlier plans of the project used
(ledger/names/). A longer-used name is what the reader takes a new one for. How often the new name
was used matters only if it was used for long: one harmless read makes no name trusted.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from approvals.checks.check_results import CheckResult, Compared
from approvals.checks.checked_request import CheckedRequest
from db.clock import now_us
from ledger.names.lookalike_letters import (
    OddLetter,
    compute_skeleton,
    find_disguised_words,
    find_odd_letters,
)
from ledger.names.name_lookups import (
    NewestName,
    StoredName,
    load_linked_plans,
    load_near_candidates,
    load_newest_names,
    load_same_looking,
)
from ledger.names.names_of_plan import (
    NamedText,
    PlanName,
    encode_host,
    find_false_hosts,
    find_named_texts,
    find_plan_names,
    find_registered_domain,
)
from ledger.names.near_names import (
    are_near,
    compared_part,
    count_differences,
    cut_pieces,
    find_marks,
    has_swapped_pair,
    iterate_inner_domains,
    iterate_shorter_domains,
    possible_pieces,
    replace_numbers,
)
from ledger.names.used_names import MAX_LINKED_PLANS, load_names_position

LOOKALIKE: Final = "lookalike_letters"
NEAR_NAME: Final = "near_name"
FIRST_USE: Final = "first_use"
MAX_RESULTS: Final = 6  # of one request
MAX_NEAR_LOOKUPS: Final = 64  # new names of a page that are compared letter by letter
MIN_KNOWN_USES: Final = 2  # of a name that another may be taken for
MAX_NEAR_KNOWN: Final = 2  # a name near to more of them is one of a series
# A name used so often, and so long or half as often as the other, is one that people know.
ESTABLISHED_USES: Final = 10
ESTABLISHED_US: Final = 14 * 86_400_000_000
_DAY_US: Final = 86_400_000_000
_FIRST_USE_KINDS: Final = ("mail_domain", "account", "cluster")
_USUAL_BRANCHES: Final = ("main", "master", "develop", "production", "staging", "release", "trunk")
# They host other domains below their own.
_HOSTERS: Final = frozenset(
    {"amazonaws.com", "cloudfront.net", "edgekey.net", "akamaized.net", "outlook.com", "fastly.net"}
    | {"cloudflare.net", "azureedge.net", "windows.net", "googleapis.com", "cluster.local"}
)
_HOST_KINDS: Final = frozenset({"mail_domain", "host", "domain"})
# The part that somebody registered says most, then what contains it.
_KIND_ORDER: Final = (
    *("domain", "mail_domain", "host", "mail_address", "account", "repository", "cluster"),
    *("bucket", "database"),
)


class NearCandidate(NamedTuple):
    """A name that shares a third with a new one: the part that is compared, also without digits."""

    stored: StoredName
    part: str
    bare: str


@dataclass(frozen=True, slots=True)
class NameFacts:
    """What earlier plans of the project say about the names of some requests."""

    position: int = 0  # the journal position up to which names were read
    now_us: int = 0
    by_name: Mapping[tuple[str, str], StoredName] = field(default_factory=dict)
    by_skeleton: Mapping[str, Sequence[StoredName]] = field(default_factory=dict)
    # Names used more than once, by kind, third (0 to 2) and its text.
    near: Mapping[tuple[str, int, str], Sequence[NearCandidate]] = field(default_factory=dict)
    compared: frozenset[tuple[str, str]] = frozenset()  # kinds and parts that were looked up
    names: Mapping[UUID, Sequence[PlanName]] = field(default_factory=dict)  # by gate
    plans: Mapping[int, Sequence[tuple[int, bool]]] = field(default_factory=dict)
    newest: Sequence[NewestName] = ()
    skeletons: Mapping[str, str] = field(default_factory=dict)  # of names, as sent and folded

    def is_read_before(self, request: CheckedRequest) -> bool:
        """True if the names of all plans before this request are known."""
        return self.position >= request.plan_position - 1

    def is_first_use(self, kind: str, name: str, request: CheckedRequest) -> bool:
        """True if no effect planned before this request ran with the name."""
        stored = self.by_name.get((kind, name))
        if stored is None or stored.first_position >= request.plan_position:
            return True
        plans = self.plans.get(stored.id, ())
        if stored.uses > MAX_LINKED_PLANS:
            return False
        return not any(ran for position, ran in plans if position < request.plan_position)


def load_name_facts(project: UUID, requests: Sequence[CheckedRequest]) -> NameFacts:
    """Load what the names of all these requests are compared with. At most five queries."""
    names_of = {
        request.gate: find_plan_names(request.arguments, request.repository) for request in requests
    }
    names = [(request, name) for request in requests for name in names_of[request.gate]]
    if not names:
        return NameFacts()
    position = load_names_position()  # first: the names may only be further than it says
    texts = {text for _, name in names for text in (name.folded, name.value)}
    by_text = {text: compute_skeleton(text) for text in texts}
    skeletons = set(by_text.values())
    for _, name in names:
        if name.kind == "domain" and name.is_recipient:
            skeletons |= set(map(compute_skeleton, iterate_shorter_domains(name.folded)))
        if name.kind in ("mail_domain", "host"):
            skeletons |= set(map(compute_skeleton, iterate_inner_domains(name.folded)))
    by_skeleton: dict[str, list[StoredName]] = defaultdict(list)
    by_name = {}
    for stored in load_same_looking(project, skeletons):
        by_skeleton[stored.skeleton].append(stored)
        by_name[stored.kind, stored.name] = stored
    rare, parts = {}, set[tuple[str, str]]()
    for request, name in names:
        stored_name = by_name.get((name.kind, name.folded))
        if stored_name is None or stored_name.first_position >= request.plan_position:
            rare[name.kind, name.folded] = 0
        elif not _is_established(stored_name, request):
            rare[name.kind, name.folded] = stored_name.id
        else:
            continue
        if not name.is_mentioned and (part := compared_part(name.kind, name.folded)):
            parts.add((name.kind, part))
    compared = sorted(parts)[:MAX_NEAR_LOOKUPS]
    near: dict[tuple[str, int, str], list[NearCandidate]] = defaultdict(list)
    for stored in load_near_candidates(project, compared, MIN_KNOWN_USES):
        part = compared_part(stored.kind, stored.name)
        candidate = NearCandidate(stored, part, replace_numbers(part))
        for number, piece in enumerate(cut_pieces(part)):
            near[stored.kind, number, piece].append(candidate)
    return NameFacts(
        position,
        now_us(),
        by_name,
        by_skeleton,
        near,
        frozenset(compared),
        names_of,
        load_linked_plans([identity for identity in rare.values() if identity]),
        load_newest_names(project, {kind for kind, _ in rare} & set(_FIRST_USE_KINDS)),
        by_text,
    )


def find_lookalikes(request: CheckedRequest, facts: NameFacts) -> Iterator[CheckResult]:
    """Yield lookalikes, near names and first uses of one request, at most MAX_RESULTS."""
    names_of = facts.names.get(request.gate)
    if names_of is None:
        names_of = find_plan_names(request.arguments, request.repository)
    names = sorted(names_of, key=lambda name: _KIND_ORDER.index(name.kind))
    results = list[CheckResult]()
    flagged = list[tuple[str, str]]()
    for name in names:
        if any(path == name.path and folded in name.folded for path, folded in flagged):
            continue
        result = _find_lookalike(name, request, facts) or _find_near_name(name, request, facts)
        if result is not None:
            results.append(result)
            flagged.append((name.path, name.folded))
    target = {
        "ref": request.ref,
        "environment": request.environment,
        "resource": request.resource,
        "repository": request.repository,
    }
    for text in find_named_texts(request.arguments, target):
        if not any(path == text.path for path, _ in flagged):
            results += _find_odd_text(text)
    results += _find_false_hosts(request)
    results += _find_first_uses(names, flagged, request, facts)
    yield from results[:MAX_RESULTS]


def _find_lookalike(
    name: PlanName, request: CheckedRequest, facts: NameFacts
) -> CheckResult | None:
    """Return the danger that a name looks like another, or holds letters that look like others."""
    folded, word = name.folded, name.word
    is_host = name.kind in _HOST_KINDS or name.kind == "mail_address"
    odd = find_odd_letters(folded, in_host=is_host)
    if name.kind == "domain" and any(
        letter.looks_like and letter.looks_like in "/.:@?#" for letter in odd
    ):
        return None  # the border of the domain itself is false: the host shows it
    older = _find_twin(name, request, facts, is_odd=bool(odd))
    disguised = find_disguised_words(folded) if name.kind in _HOST_KINDS else ()
    if older is None and not odd and not (disguised and _has_latin_suffix(folded)):
        return None
    if older is None and name.is_mentioned and not odd:
        return None
    own_marks: tuple[int, ...] = tuple(letter.offset for letter in odd)
    for part in disguised if not odd else ():
        own_marks += tuple(range(folded.index(part), folded.index(part) + len(part)))
    compared = []
    if older is not None:
        marks, known_marks = find_marks(folded, older.name)
        own_marks = own_marks or marks
        notes = [_describe_uses(older, facts.now_us)]
        if odd and len(older.name) == len(folded):
            notes += [
                f"Letter {letter.offset + 1} is {_describe_plain(older.name[letter.offset])}."
                for letter in odd[:2]
                if older.name[letter.offset].isascii()
            ]
        spelled = _spell_known(name, older)
        compared.append(Compared("Known", spelled, " ".join(notes), known_marks))
    notes = [_describe_request_use(name, request, facts), *_describe_odd(odd)]
    if name.kind in _HOST_KINDS and not folded.isascii():
        notes.append(f"Written {encode_host(folded)} on the network.")
    shown = " ".join(note for note in notes if note)
    compared.insert(0, Compared("Requested", _spell_as_written(name), shown, own_marks))
    return CheckResult(
        LOOKALIKE,
        "danger" if odd or older is not None else "warning",
        f"lookalike {word}"[:28],
        f"Lookalike {word}: {_describe_difference(odd, disguised, own_marks)}.",
        f"It looks like {_article(word)} that was used before, but is another one."
        if older is not None
        else "Its letters are not what they look like.",
        name.path,
        tuple(compared),
    )


def _find_twin(
    name: PlanName, request: CheckedRequest, facts: NameFacts, *, is_odd: bool
) -> StoredName | None:
    """Return the most used name that looks the same and was used earlier, if any."""
    own = facts.by_name.get((name.kind, name.folded))
    own_first = min(own.first_position if own else request.plan_position, request.plan_position)
    skeletons = (
        facts.skeletons.get(text) or compute_skeleton(text)
        for text in dict.fromkeys((name.folded, name.value))
    )
    kinds = _HOST_KINDS if name.kind in _HOST_KINDS else {name.kind}
    for skeleton in dict.fromkeys(skeletons):
        for stored in facts.by_skeleton.get(skeleton, ()):
            if stored.kind not in kinds or stored.name == name.folded:
                continue
            if stored.first_position >= (request.plan_position if is_odd else own_first):
                continue
            plain = name.folded.isascii() and stored.name.isascii()
            if plain and own is not None and _is_established(own, request, stored.uses):
                continue
            if not is_odd and not stored.name.isascii() and name.folded.isascii():
                continue  # the plain name is not the deception
            return stored
    return None


def _find_near_name(
    name: PlanName, request: CheckedRequest, facts: NameFacts
) -> CheckResult | None:
    """Return the warning that a new name differs a little from one that was used before."""
    part, own = compared_part(name.kind, name.folded), facts.by_name.get((name.kind, name.folded))
    if name.is_mentioned or not facts.is_read_before(request):
        return None
    if name.kind in ("mail_domain", "host"):
        return _find_inner_domain(name, request, facts)
    if not part:
        return _find_related_domain(name, request, facts) if name.is_recipient else None
    own_first = min(own.first_position if own else request.plan_position, request.plan_position)
    earlier = []
    bare = "" if name.kind == "account" else replace_numbers(part)
    for stored, stored_part, stored_bare in _iterate_candidates(name.kind, part, facts):
        if (
            stored.first_position < own_first
            and stored_bare != bare  # a series; only accounts may be near and differ by numbers
            and stored.uses >= MIN_KNOWN_USES
            and are_near(name.kind, part, stored_part)
            and (own is None or not _is_established(own, request, stored.uses))
        ):
            earlier.append(stored)
            if len(earlier) > MAX_NEAR_KNOWN:
                return None  # one of a series
    if earlier:
        older = max(earlier, key=lambda stored: stored.uses)
        return _build_near_result(name, older, request, facts)
    if name.kind == "domain" and name.is_recipient:
        return _find_related_domain(name, request, facts)
    return None


def _iterate_candidates(kind: str, part: str, facts: NameFacts) -> Iterator[NearCandidate]:
    """Yield each loaded name that shares a third with `part`, once."""
    if (kind, part) not in facts.compared:
        return
    seen = set[int]()
    for number, pieces in enumerate(possible_pieces(part)):
        for piece in pieces:
            for candidate in facts.near.get((kind, number, piece), ()):
                if candidate.stored.id not in seen:
                    seen.add(candidate.stored.id)
                    yield candidate


def _build_near_result(
    name: PlanName, older: StoredName, request: CheckedRequest, facts: NameFacts
) -> CheckResult:
    word = name.word
    count = count_differences(
        compared_part(name.kind, name.folded), compared_part(older.kind, older.name)
    )
    characters = "1 character differs" if count == 1 else f"{count} characters differ"
    if has_swapped_pair(name.folded, older.name):
        characters = "2 characters are swapped"
    grave = name.kind == "account" or name.is_recipient
    return CheckResult(
        NEAR_NAME,
        "danger" if grave else "warning",
        f"almost a known {word}"[:28],
        f"Almost a known {word}: {characters}.",
        f"Is the {word} meant that was used before?",
        name.path,
        _compare_names(name, older, request, facts),
    )


def _find_related_domain(
    name: PlanName, request: CheckedRequest, facts: NameFacts
) -> CheckResult | None:
    """Return the warning that a recipient's domain has another ending or word than a known one."""
    if not facts.is_first_use(name.kind, name.folded, request):
        return None
    if name.kind != "domain":
        return None
    part = compared_part(name.kind, name.folded)
    same_label = (
        candidate.stored
        for candidate in _iterate_candidates(name.kind, part, facts)
        if candidate.part == part and candidate.stored.name != name.folded
    )
    shorter = (
        stored
        for domain in iterate_shorter_domains(name.folded)
        if (stored := facts.by_name.get((name.kind, domain))) is not None
    )
    for stored in chain(same_label, shorter):
        if stored.first_position >= request.plan_position or stored.uses <= MIN_KNOWN_USES:
            continue
        label, _, suffix = name.folded.partition(".")
        known_label, _, known_suffix = stored.name.partition(".")
        title = (
            f"Other ending of a known domain: .{suffix}, not .{known_suffix}."
            if label == known_label
            else f"A known domain with another word: {label}, not {known_label}."
        )
        return CheckResult(
            NEAR_NAME,
            "warning",
            "almost a known domain",
            title,
            "Anybody can register it. Is the known domain meant?",
            name.path,
            _compare_names(name, stored, request, facts),
        )
    return None


def _find_inner_domain(
    name: PlanName, request: CheckedRequest, facts: NameFacts
) -> CheckResult | None:
    """Return the warning that a host begins with a known domain of somebody else."""
    if not facts.is_first_use(name.kind, name.folded, request):
        return None
    own = find_registered_domain(name.folded)
    for domain in iterate_inner_domains(name.folded):
        stored = facts.by_name.get(("domain", domain))
        if stored is None or stored.uses <= MIN_KNOWN_USES or own in _HOSTERS:
            continue
        if stored.first_position < request.plan_position:
            return CheckResult(
                NEAR_NAME,
                "warning",
                "almost a known domain",
                f"Begins as a known domain: it belongs to {own}.",
                "The end of a host says whose it is. Is the known domain meant?",
                name.path,
                _compare_names(name, stored, request, facts),
            )
    return None


def _find_odd_text(text: NamedText) -> Iterator[CheckResult]:
    """Yield the danger that a ref, a path or a command holds letters that look like others."""
    odd = find_odd_letters(text.value)
    if text.what == "value":  # which may be any text, also in fullwidth Japanese digits
        odd = tuple(letter for letter in odd if letter.script or not letter.looks_like)
    if not odd:
        if text.what == "ref":
            yield from _find_false_branch(text)
        return
    start, end = _find_word_around(text.value, odd[0].offset)
    inside = [letter for letter in odd if start <= letter.offset < end]
    marks = tuple(letter.offset - start for letter in inside)
    counted_from_word = [letter._replace(offset=letter.offset - start) for letter in inside]
    yield CheckResult(
        LOOKALIKE,
        "danger",
        "lookalike letter",
        f"Lookalike letters in the {text.what}: {_describe_difference(odd, (), marks)}.",
        "They are not the letters that they look like.",
        text.path,
        (
            Compared(
                "Requested",
                text.value[start:end],
                " ".join(_describe_odd(counted_from_word)),
                marks,
            ),
        ),
    )


def _find_false_branch(text: NamedText) -> Iterator[CheckResult]:
    """Yield the danger that a branch looks like one that everybody knows: maın."""
    branch = text.value.rpartition(":")[2].rpartition("/")[2]
    skeleton = compute_skeleton(branch)
    for usual in () if branch.isascii() else _USUAL_BRANCHES:
        if skeleton == compute_skeleton(usual):
            marks, usual_marks = find_marks(branch, usual)
            yield CheckResult(
                LOOKALIKE,
                "danger",
                "lookalike branch",
                f"Lookalike branch: it is not {usual}.",
                "Its letters are not what they look like.",
                text.path,
                (
                    Compared("Requested", branch, "", marks),
                    Compared("Usual", usual, "", usual_marks),
                ),
            )


def _find_false_hosts(request: CheckedRequest) -> Iterator[CheckResult]:
    """Yield the danger that a URL shows a host that is only its user name."""
    for path, shown, host in find_false_hosts(request.arguments):
        yield CheckResult(
            LOOKALIKE,
            "danger",
            "false host",
            f"False host: the call goes to {host[:80]}.",
            "What stands before the @ of a URL is a user name.",
            path,
            (Compared("Shown first", shown), Compared("Host", host)),
        )


def _find_first_uses(
    names: Sequence[PlanName],
    flagged: Sequence[tuple[str, str]],
    request: CheckedRequest,
    facts: NameFacts,
) -> Iterator[CheckResult]:
    """Yield one notice for each kind of recipient, account or cluster that is used first."""
    if not facts.is_read_before(request):
        return
    for kind in _FIRST_USE_KINDS:
        new = [
            name
            for name in names
            if name.kind == kind
            and not name.is_mentioned
            and (name.is_recipient or kind != "mail_domain")
            and facts.is_first_use(kind, name.folded, request)
        ]
        if not new or not _is_first_use_unusual(
            kind, {name.folded for name in new}, request, facts
        ):
            continue
        shown = [
            name
            for name in new
            if not any(path == name.path and part in name.folded for path, part in flagged)
        ]
        if not shown:
            continue
        word, more = shown[0].word, len(shown) - 1
        others = f" and of {more} more" if more else ""
        yield CheckResult(
            FIRST_USE,
            "notice",
            f"first use of {word}",
            f"First use of {word} {shown[0].folded}{others}.",
            "No effect of this project ran with it before.",
            shown[0].path,
        )


def _is_first_use_unusual(
    kind: str, own: set[str], request: CheckedRequest, facts: NameFacts
) -> bool:
    """True if the project used other names of this kind before, and uses them again and again."""
    earlier = [
        newest
        for newest in facts.newest
        if newest.kind == kind
        and newest.name not in own
        and newest.first_position < request.plan_position
    ]
    if len(earlier) < 10:
        return bool(earlier)
    return sum(newest.uses for newest in earlier) >= 2 * len(earlier)


def _is_established(own: StoredName, request: CheckedRequest, other_uses: int = 0) -> bool:
    """True if people know the name: used often, and for long or half as often as the other."""
    if own.first_position >= request.plan_position or own.uses < ESTABLISHED_USES:
        return False
    is_old = request.requested_at_us - own.first_us >= ESTABLISHED_US
    return is_old or own.uses * 2 >= max(other_uses, 1)


def _compare_names(
    name: PlanName, older: StoredName, request: CheckedRequest, facts: NameFacts
) -> tuple[Compared, ...]:
    marks, known_marks = find_marks(name.folded, older.name)
    use = _describe_request_use(name, request, facts)
    spelled = _spell_known(name, older)
    return (
        Compared("Requested", _spell_as_written(name), use, marks),
        Compared("Known", spelled, _describe_uses(older, facts.now_us), known_marks),
    )


def _spell_as_written(name: PlanName) -> str:
    """Return a name in the case in which the agent wrote it; its characters are those compared.

    A folded form that differs in more than case and separators stays as it is.
    """
    letters = list[str]()
    for letter in name.value:
        if len(letters) < len(name.folded) and letter.lower() == name.folded[len(letters)]:
            letters.append(letter)
        elif letter.isalnum():
            return name.folded
    return "".join(letters) if len(letters) == len(name.folded) else name.folded


def _spell_known(name: PlanName, older: StoredName) -> str:
    """Return a known account in capitals if the requested one is: its own case is not stored."""
    in_capitals = name.kind == "account" and name.value.isupper()
    return older.name.upper() if in_capitals else older.name


def _describe_request_use(name: PlanName, request: CheckedRequest, facts: NameFacts) -> str:
    if not facts.is_read_before(request):
        return ""
    if facts.is_first_use(name.kind, name.folded, request):
        return "First use ever."
    stored = facts.by_name[name.kind, name.folded]
    return _describe_uses(stored, facts.now_us)


def _describe_uses(stored: StoredName, now: int) -> str:
    """Return `214 effects since 2 March, last on Thursday.`"""
    effects = "1 effect" if stored.uses == 1 else f"{stored.uses:,} effects"
    since = _describe_day(stored.first_us, now)
    if stored.uses == 1:
        return f"{effects}, {since}."
    return (
        f"{effects} since {since.removeprefix('on ')}, last {_describe_day(stored.last_us, now)}."
    )


def _describe_day(at_us: int, now: int) -> str:
    """Return today, yesterday, on Thursday, on 2 March, on 2 March 2025; days are those of UTC."""
    at = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    days = now // _DAY_US - at_us // _DAY_US
    if days <= 0:
        return "today"
    if days == 1:
        return "yesterday"
    if days < 7:
        return f"on {at:%A}"
    year = "" if days < 300 else f" {at:%Y}"
    return f"on {at.day} {at:%B}{year}"


def _describe_difference(
    odd: Sequence[OddLetter], disguised: Sequence[str], marks: Sequence[int]
) -> str:
    if odd:
        scripts = {letter.script for letter in odd}
        count = len(odd)
        if len(scripts) == 1 and "" not in scripts:
            (script,) = scripts
            return f"1 letter is {script}" if count == 1 else f"{count} letters are {script}"
        return (
            "1 character is not what it looks like"
            if count == 1
            else f"{count} characters are not what they look like"
        )
    if disguised:
        return "a whole word is not Latin"
    return "1 character differs" if len(marks) == 1 else f"{max(len(marks), 1)} characters differ"


def _describe_odd(odd: Sequence[OddLetter]) -> list[str]:
    """Return `Letter 2 is Cyrillic o, U+043E.` for the first letters."""
    notes = [f"Letter {letter.offset + 1} is {letter.describe()}." for letter in odd[:3]]
    return notes + ([f"And {len(odd) - 3} more."] if len(odd) > 3 else [])


def _describe_plain(letter: str) -> str:
    return f"{'Latin ' if letter.isalpha() else ''}{letter}, U+{ord(letter):04X}"


def _has_latin_suffix(host: str) -> bool:
    return host.rpartition(".")[2].isascii()


def _find_word_around(text: str, offset: int) -> tuple[int, int]:
    """Return start and end of the blank-separated word at `offset`, at most 60 characters."""
    start = max(text.rfind(blank, 0, offset) for blank in " \t\n\"'=") + 1
    ends = [end for blank in " \t\n\"'" if (end := text.find(blank, offset)) >= 0]
    start = max(start, offset - 30)
    return start, min([len(text), start + 60, *ends])


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
