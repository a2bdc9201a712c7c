"""Match an event of a code host with the effects that may be behind it. Pure; no database.

A rule compares the event with one call. Rules in `STRONG_RULES` compare something that only this
call produced or named: a commit, an id, a reference, a text. The others compare where and what,
which somebody else could have done too: they decide only if the sender is a listed identity of the
effect's agent. Several effects that fit equally well are never chosen from: a person decides.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from accounts.git_refs import HEADS_PREFIX
from hooks.code_hosts.event_facts import EventFacts, digest_written_text, split_repository

WINDOW_BEFORE_US: Final = 3_600_000_000  # an effect is dispatched at most this long before
WINDOW_AFTER_US: Final = 120_000_000  # … or this long after the event, by clocks that differ
MAX_VALUES: Final = 400  # values read of one effect's arguments
_SHA_TEXT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.IGNORECASE)
_SHORT_SHA: Final = re.compile(r"[0-9a-f]{7,64}")
_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_REPOSITORY_NAMES: Final = frozenset(
    {"repository", "repo", "project", "project_path", "repository_full_name", "remote", "url"}
)
_REF_NAMES: Final = frozenset(
    {"ref", "branch", "refspec", "refs", "head", "source_branch", "head_branch", "tag", "target"}
)
_BASE_NAMES: Final = frozenset({"base", "target_branch", "base_branch"})
_NUMBER_NAMES: Final = frozenset(
    {
        "number",
        "pull_number",
        "pr",
        "pr_number",
        "pull_request",
        "pull_request_number",
        "issue_number",
        "issue",
        "iid",
        "merge_request_iid",
        "merge_request",
        "issue_iid",
    }
)
_TEXT_NAMES: Final = frozenset({"body", "comment", "note", "text", "message", "description"})
_COMMENT_ID_NAMES: Final = frozenset({"comment_id", "note_id"})
_WORKFLOW_NAMES: Final = frozenset({"workflow", "workflow_id", "workflow_file"})
# Words in a tool's name that can produce an event of this kind.
_TOOL_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "push": frozenset(
        {"push", "commit", "commits", "merge", "ref", "refs", "branch", "tag", "file", "files"}
        | {"contents", "release", "revert", "sync"}
    ),
    "pull_request": frozenset({"pull", "pulls", "pr", "prs", "merge", "mr", "mrs", "request"}),
    "comment": frozenset({"comment", "comments", "note", "notes", "reply", "review"}),
    "deployment": frozenset({"deploy", "deployment", "deployments", "release"}),
    "run": frozenset({"workflow", "dispatch", "run", "pipeline", "trigger", "actions", "action"}),
    "check": frozenset({"push", "commit", "check", "job", "workflow"}),
}
_UPDATES: Final = frozenset({"update", "edit", "set", "patch"})
# Words of which one must be in the tool's name for an action on a pull request.
_ACTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "opened": frozenset({"create", "open", "new", "add"}),
    "merged": frozenset({"merge", "accept"}),
    "closed": frozenset({"close"}) | _UPDATES,
    "reopened": frozenset({"reopen", "open"}) | _UPDATES,
    "edited": _UPDATES,
    "labeled": frozenset({"label", "labels"}) | _UPDATES,
    "unlabeled": frozenset({"label", "labels", "unlabel"}) | _UPDATES,
    "assigned": frozenset({"assign", "assignee", "assignees"}) | _UPDATES,
    "unassigned": frozenset({"assign", "unassign", "assignee", "assignees"}) | _UPDATES,
    "ready_for_review": frozenset({"ready", "draft"}) | _UPDATES,
    "converted_to_draft": frozenset({"draft"}) | _UPDATES,
    "review_requested": frozenset({"review", "reviewer", "reviewers"}) | _UPDATES,
    "locked": frozenset({"lock"}),
    "unlocked": frozenset({"unlock"}),
}


@dataclass(frozen=True, slots=True)
class CallFacts:
    """One call of an effect: its tool, and what its arguments and target name.

    A compound shell command has several. `deletes` and `forces` are None where the arguments do not
    say it.
    """

    tool: str
    words: frozenset[str] = frozenset()
    repositories: tuple[tuple[str, str], ...] = ()  # (site, path)
    refs: frozenset[str] = frozenset()
    base_refs: frozenset[str] = frozenset()
    shas: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()
    comment_ids: frozenset[str] = frozenset()
    text_digests: frozenset[str] = frozenset()
    workflows: frozenset[str] = frozenset()
    environments: frozenset[str] = frozenset()
    deletes: bool | None = None
    forces: bool | None = None


@dataclass(frozen=True, slots=True)
class EffectFacts:
    """An effect as matching sees it. `started_us`: when its attempts were dispatched.

    `bound` holds the (kind, action, subject) of other events that it is matched with.
    """

    id: UUID
    agent: UUID
    calls: tuple[CallFacts, ...]
    references: tuple[str, ...] = ()
    started_us: tuple[int, ...] = ()
    is_read_only: bool = False
    in_doubt: bool = True  # no report of known outcome
    bound: frozenset[tuple[str, str, str]] = frozenset()


class Compared(NamedTuple):
    """One compared value: what, of the event, and of the effect."""

    what: str
    event: str
    effect: str


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A rule that matches an effect, and what it compared."""

    effect: UUID
    rule: str
    compared: tuple[Compared, ...]
    by_identity: bool  # the sender is a listed identity of the effect's agent
    dispatched: bool
    in_doubt: bool

    @property
    def is_certain(self) -> bool:
        """True if nobody else could have caused the event by what is known."""
        return self.rule in STRONG_RULES or self.by_identity


@dataclass(frozen=True, slots=True)
class MatchDecision:
    """The result: the effect behind the event, or candidates for a person, or nothing.

    `undispatched` are effects that planned the same and were never dispatched.
    """

    chosen: RuleMatch | None = None
    candidates: tuple[RuleMatch, ...] = ()
    undispatched: tuple[RuleMatch, ...] = ()


def decide_match(
    event: EventFacts,
    at_us: int,
    effects: Iterable[EffectFacts],
    *,
    sender_agents: Collection[UUID] = (),
    rivals_us: Sequence[int] = (),
) -> MatchDecision:
    """Return which effect is behind an event that happened at `at_us`.

    `sender_agents`: the agents of which the sender is an identity. `rivals_us`: when other events
    happened that are like this one and have no effect either: a weak rule could explain one of
    them by the same effect.
    """
    effects = list(effects)
    matches = [
        match
        for effect in effects
        if not sender_agents or effect.agent in sender_agents
        if (match := find_rule(event, at_us, effect, by_identity=effect.agent in sender_agents))
    ]
    undispatched = tuple(match for match in matches if not match.dispatched)
    # Where the outcome is known, only a certain match says more than is known already.
    dispatched = [
        match for match in matches if match.dispatched and (match.is_certain or match.in_doubt)
    ]
    best_rank = min((_rank(match) for match in dispatched), default=None)
    best = tuple(match for match in dispatched if _rank(match) == best_rank)
    if not best:
        return MatchDecision(undispatched=undispatched)
    has_rival = best[0].rule not in STRONG_RULES and any(
        is_in_window(effect, at_rival_us)
        for effect in effects
        if effect.id == best[0].effect
        for at_rival_us in rivals_us
    )
    is_unique = len(best) == 1 and not has_rival
    if is_unique and best[0].is_certain:
        return MatchDecision(chosen=best[0])
    return MatchDecision(candidates=best)


def _rank(match: RuleMatch) -> tuple[bool, int]:
    return match.rule not in STRONG_RULES, 0 if match.rule in STRONG_RULES else _ORDER[match.rule]


def is_in_window(effect: EffectFacts, at_us: int) -> bool:
    """True if an attempt of the effect may have caused an event at `at_us`."""
    return any(
        at_us - WINDOW_BEFORE_US <= started <= at_us + WINDOW_AFTER_US
        for started in effect.started_us
    )


def find_rule(
    event: EventFacts, at_us: int, effect: EffectFacts, *, by_identity: bool
) -> RuleMatch | None:
    """Return the first rule by which `effect` may be behind the event, or None."""
    if effect.started_us and not is_in_window(effect, at_us):
        return None
    same_action = {bound[2] for bound in effect.bound if bound[:2] == (event.kind, event.action)}
    for rule, (kinds, test) in RULES.items():
        if event.kind not in kinds:
            continue
        if rule not in STRONG_RULES and (effect.is_read_only or same_action - {event.subject}):
            continue  # it explains another event of this kind already
        for call in effect.calls:
            compared = test(event, call, effect)
            if compared is not None:
                return RuleMatch(
                    effect.id,
                    rule,
                    tuple(compared),
                    by_identity,
                    bool(effect.started_us),
                    effect.in_doubt,
                )
    return None


_Test = Callable[[EventFacts, CallFacts, EffectFacts], Sequence[Compared] | None]


def _by_external_reference(
    event: EventFacts, call: CallFacts, effect: EffectFacts
) -> Sequence[Compared] | None:
    if not _may_be_same_repository(event, call):
        return None
    named = [reference.strip() for reference in effect.references if reference.strip()]
    sure = _is_same_repository(event, call)
    for reference in named:
        for name in (*event.references, event.sha):
            if not name:
                continue
            is_whole_name = len(name) >= 40 or "/" in name or "#" in name or "!" in name
            if reference == name and (is_whole_name or sure):
                return [Compared("external reference", name, reference)]
            is_short = _SHORT_SHA.fullmatch(reference.lower()) and name == event.sha
            if is_short and sure and name.startswith(reference.lower()):
                return [*_repository(event, call), Compared("commit", name, reference)]
    return None


def _by_comment_id(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    if event.action == "created" or not _has_word(event, call):
        return None
    if event.comment_id not in call.comment_ids or not _may_be_same_repository(event, call):
        return None
    wants_delete = call.words & {"delete", "remove"}
    if bool(wants_delete) != (event.action == "deleted"):
        return None
    return [
        *_repository(event, call),
        Compared("comment", event.comment_id, event.comment_id),
        Compared("action", event.action, call.tool),
    ]


def _by_comment_text(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    if event.action not in ("created", "edited") or not _has_word(event, call):
        return None
    if not event.text_digest or event.text_digest not in call.text_digests:
        return None
    if not _is_same_repository(event, call) or event.number not in call.numbers:
        return None
    return [
        *_repository(event, call),
        Compared("number", f"#{event.number}", f"#{event.number}"),
        Compared("text", f"SHA-256 {event.text_digest[:12]}…", "the same text"),
    ]


def _by_push_head_sha(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    if not event.sha or event.sha not in call.shas or not _has_word(event, call):
        return None
    if not _is_same_repository(event, call) or (call.refs and event.ref not in call.refs):
        return None
    return [
        *_repository(event, call),
        Compared("commit", event.sha, event.sha),
        *([Compared("ref", event.ref, event.ref)] if call.refs else []),
    ]


def _by_push_ref_after(
    event: EventFacts, call: CallFacts, effect: EffectFacts
) -> Sequence[Compared] | None:
    if not event.ref or event.ref not in call.refs or not _has_word(event, call):
        return None
    if not _is_same_repository(event, call):
        return None
    reported = {name.lower() for name in effect.references if _SHA_TEXT.fullmatch(name)}
    other_commits = (call.shas | reported) - {event.sha}
    if other_commits and event.sha not in call.shas | reported:
        return None  # plan or report name another commit
    if bool(call.deletes) != event.deleted or (event.forced and call.forces is False):
        return None
    return [
        *_repository(event, call),
        Compared("ref", event.ref, event.ref),
        Compared("moves it to", event.sha or "(deleted)", "(not named)"),
    ]


def _by_pull_request_head(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    if event.action != "opened" or not _has_action(event, call) or call.numbers:
        return None
    if not _is_same_repository(event, call) or event.ref not in call.refs:
        return None
    if call.base_refs and event.base_ref not in call.base_refs:
        return None
    return [
        *_repository(event, call),
        Compared("from", event.ref, event.ref),
        *([Compared("into", event.base_ref, event.base_ref)] if call.base_refs else []),
    ]


def _by_pull_request_number(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    if event.action == "opened" or not _has_action(event, call):
        return None
    if event.number is None or event.number not in call.numbers:
        return None
    if not _is_same_repository(event, call):
        return None
    return [
        *_repository(event, call),
        Compared("number", f"#{event.number}", f"#{event.number}"),
        Compared("action", event.action, call.tool),
    ]


def _by_comment_number(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    """Match a comment whose text the plan does not hold: where it is, and nothing else."""
    if event.action != "created" or not _has_word(event, call) or call.text_digests:
        return None
    if not _is_same_repository(event, call) or event.number not in call.numbers:
        return None
    return [
        *_repository(event, call),
        Compared("number", f"#{event.number}", f"#{event.number}"),
        Compared("text", "a comment", "(not in the plan)"),
    ]


def _by_deployment(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    if not event.is_action or not _has_word(event, call) or not _is_same_repository(event, call):
        return None
    if event.environment.lower() not in call.environments:
        return None
    if event.sha in call.shas and event.sha:
        what = Compared("commit", event.sha, event.sha)
    elif event.ref in call.refs and not call.shas:
        what = Compared("ref", event.ref, event.ref)
    else:
        return None
    return [
        *_repository(event, call),
        Compared("environment", event.environment, event.environment),
        what,
    ]


def _by_workflow_ref(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    if not event.is_action or not _has_word(event, call) or not _is_same_repository(event, call):
        return None
    if event.ref not in call.refs:
        return None
    compared = [*_repository(event, call), Compared("ref", event.ref, event.ref)]
    if event.workflow:
        names = {event.workflow.lower(), event.workflow.lower().rpartition("/")[2]}
        if not names & call.workflows:
            return None
        compared.append(Compared("workflow", event.workflow, min(names & call.workflows)))
    return compared


def _by_run_head_sha(
    event: EventFacts, call: CallFacts, _effect: EffectFacts
) -> Sequence[Compared] | None:
    """Match a run or check of a commit that the effect pushed: the commit is at the host."""
    if event.is_action or not event.sha or event.sha not in call.shas:
        return None
    if not call.words & _TOOL_WORDS["push"] or not _is_same_repository(event, call):
        return None
    if call.refs and event.ref and event.ref not in call.refs:
        return None
    return [*_repository(event, call), Compared("commit", event.sha, event.sha)]


# Rule -> kinds of events, and the test. In order: the first that matches names the match.
RULES: Final[Mapping[str, tuple[tuple[str, ...], _Test]]] = {
    "external_reference": (
        ("push", "pull_request", "comment", "deployment", "run", "check"),
        _by_external_reference,
    ),
    "comment_id": (("comment",), _by_comment_id),
    "comment_text": (("comment",), _by_comment_text),
    "push_head_sha": (("push",), _by_push_head_sha),
    "run_head_sha": (("run", "check"), _by_run_head_sha),
    "push_ref_after": (("push",), _by_push_ref_after),
    "pull_request_number": (("pull_request",), _by_pull_request_number),
    "pull_request_head": (("pull_request",), _by_pull_request_head),
    "comment_number": (("comment",), _by_comment_number),
    "deployment_environment": (("deployment",), _by_deployment),
    "workflow_ref": (("run",), _by_workflow_ref),
}
# Rules whose values only this call produced or named; they need no listed identity.
STRONG_RULES: Final = frozenset(
    {"external_reference", "comment_id", "comment_text", "push_head_sha", "run_head_sha"}
)
_ORDER: Final = {rule: place for place, rule in enumerate(RULES)}


def _repository(event: EventFacts, call: CallFacts) -> list[Compared]:
    names = [
        "/".join(filter(None, (site, path)))
        for site, path in call.repositories
        if path == event.repository
    ]
    return [Compared("repository", event.repository, names[0] if names else "(not named)")]


def _is_same_repository(event: EventFacts, call: CallFacts) -> bool:
    """True if the call names the event's repository; a site is compared where both have one."""
    return any(
        path == event.repository and (not site or not event.site or site == event.site)
        for site, path in call.repositories
    )


def _may_be_same_repository(event: EventFacts, call: CallFacts) -> bool:
    return not call.repositories or _is_same_repository(event, call)


def _has_word(event: EventFacts, call: CallFacts) -> bool:
    return bool(call.words & _TOOL_WORDS[event.kind])


def _has_action(event: EventFacts, call: CallFacts) -> bool:
    return _has_word(event, call) and bool(
        call.words & _ACTION_WORDS.get(event.action, frozenset())
    )


@dataclass(slots=True)
class _Values:
    """What the arguments of a call name, while they are read."""

    repositories: list[tuple[str, str]] = field(default_factory=list)
    refs: set[str] = field(default_factory=set)
    base_refs: set[str] = field(default_factory=set)
    shas: set[str] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    comment_ids: set[str] = field(default_factory=set)
    text_digests: set[str] = field(default_factory=set)
    workflows: set[str] = field(default_factory=set)
    environments: set[str] = field(default_factory=set)
    deletes: bool | None = None
    forces: bool | None = None
    owner: str = ""
    remaining: int = MAX_VALUES

    def read(self, value: Any, name: str, depth: int) -> None:
        """Read a value of the arguments under its name; at most MAX_VALUES, four levels deep."""
        self.remaining -= 1
        if self.remaining < 0 or depth > 4:
            return
        if isinstance(value, dict):
            for key, inner in value.items():
                if key != "parts":  # the parts of a compound command are calls of their own
                    self.read(inner, str(key).lower().replace("-", "_"), depth + 1)
        elif isinstance(value, list):
            for inner in value:
                self.read(inner, name, depth + 1)
        elif isinstance(value, bool):
            if name in ("delete", "deletes"):
                self.deletes = value
            elif name in ("force", "forces", "forced", "force_with_lease"):
                self.forces = value or bool(self.forces)
        elif isinstance(value, int):
            self._read_number(value, name)
        elif isinstance(value, str):
            self._read_text(value, name)

    def _read_number(self, value: int, name: str) -> None:
        if name in _NUMBER_NAMES:
            self.numbers.add(value)
        elif name in _COMMENT_ID_NAMES:
            self.comment_ids.add(str(value))
        elif name in _WORKFLOW_NAMES:
            self.workflows.add(str(value))

    def _read_text(self, value: str, name: str) -> None:
        text = value.strip()
        if name == "owner":
            self.owner = text.lower()
        if name in _REPOSITORY_NAMES and text:
            self.repositories.append(split_repository(text))
        if name in _REF_NAMES and text:
            self.refs |= {_full_ref(part) for part in text.split()[:8]}
        if name in _BASE_NAMES and text:
            self.base_refs.add(_full_ref(text))
        if name in _NUMBER_NAMES and text.lstrip("#!").isdigit() and len(text) < 19:
            self.numbers.add(int(text.lstrip("#!")))
        if name in _COMMENT_ID_NAMES:
            self.comment_ids.add(text)
        if name in _WORKFLOW_NAMES:
            self.workflows |= {text.lower(), text.lower().rpartition("/")[2]}
        if name == "environment":
            self.environments.add(text.lower())
        if name in _TEXT_NAMES and (digest := digest_written_text(value)):
            self.text_digests.add(digest)
        if len(text) <= 200:
            self.shas |= {sha.lower() for sha in _SHA_TEXT.findall(text)}


def _full_ref(name: str) -> str:
    text = name.removeprefix("+").rpartition(":")[2]
    return text if text.startswith("refs/") or not text else f"{HEADS_PREFIX}{text}"


def read_call(
    tool: str,
    arguments: Any,
    *,
    target: Mapping[str, Any] | None = None,
    moved_refs: str = "",
) -> CallFacts:
    """Return the facts of one call from its tool, arguments and target.

    `moved_refs` are the refs that git moves for it, as Gatebook read them from the plan: they
    replace those that the arguments name.
    """
    values = _Values()
    values.read(arguments, "", 0)
    for name, value in (target or {}).items():
        values.read(value, str(name).lower(), 1)
    if values.owner:
        values.repositories = [
            (site, path if "/" in path else f"{values.owner}/{path}")
            for site, path in values.repositories
        ]
    # `origin` is the name of a remote, and says nothing of the repository.
    values.repositories = [name for name in values.repositories if "/" in name[1]]
    exact = {ref for ref in moved_refs.split() if "*" not in ref}
    words = frozenset(word.lower() for word in _WORDS.findall(tool))
    if values.deletes is None and words & {"delete", "remove"}:
        values.deletes = True
    if values.deletes is None and isinstance(arguments, dict):
        specs = [str(arguments.get(name, "")) for name in ("ref", "refspec", "branch")]
        values.deletes = any(spec.startswith(":") or "--delete" in spec for spec in specs) or None
    return CallFacts(
        tool=tool,
        words=words,
        repositories=tuple(dict.fromkeys(values.repositories)),
        refs=frozenset(exact or values.refs),
        base_refs=frozenset(values.base_refs),
        shas=frozenset(values.shas),
        numbers=frozenset(values.numbers),
        comment_ids=frozenset(values.comment_ids),
        text_digests=frozenset(values.text_digests),
        workflows=frozenset(values.workflows),
        environments=frozenset(values.environments),
        deletes=values.deletes,
        forces=values.forces,
    )


def read_calls(
    tool: str, plan: Mapping[str, Any], *, target: Mapping[str, Any], moved_refs: str = ""
) -> tuple[CallFacts, ...]:
    """Return the calls of an effect: its own, and the parts of a compound shell command."""
    arguments = plan.get("arguments")
    calls = [read_call(tool, arguments, target=target, moved_refs=moved_refs)]
    parts = arguments.get("parts") if isinstance(arguments, dict) else None
    for part in parts[:20] if isinstance(parts, list) else ():
        if isinstance(part, dict) and isinstance(part.get("tool"), str):
            calls.append(read_call(part["tool"], part.get("arguments"), target=target))
    return tuple(calls)
