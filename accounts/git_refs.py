"""Git refs: which refs a git argument moves, and their class. Pure; no Django.

The class stamped at arrival, rules, exemptions, pages and search all use this one parser. What it
cannot parse is `ANY_REF`, which has the worst class of its repository.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

REF_CLASSES_WORST_FIRST: Final = ("production", "protected", "other")  # the worst first
ANY_REF: Final = "*"  # git may move any ref of the repository
MAX_REFS: Final = 8  # refs in one text; more are read as ANY
MAX_REFS_CHARACTERS: Final = 300  # characters of all refs together, the length of Effect.moved_refs
HEADS_PREFIX: Final = "refs/heads/"
TAGS_PREFIX: Final = "refs/tags/"
_ROOTS: Final = ("heads/", "tags/", "remotes/")
_REMOTES: Final = ("origin/", "upstream/")  # how agents name the remote whose branch they mean
_BLANKS: Final = re.compile(r"[ \t\r\n\f\v]+")
_SEPARATORS: Final = re.compile(r"[ \t\r\n\f\v:+]")
# git reads these literally; shells, and hosts that read refs from addresses, do not.
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\"'`$;&|<>(){}]")
# The rules of git check-ref-format.
_NO_NAME: Final = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|^[/-]|[/.]$|(?:^|/)\.|\.lock(?:/|$)"
)
_WIDE: Final = {  # options that name refs
    "--all": HEADS_PREFIX + ANY_REF,
    "--branches": HEADS_PREFIX + ANY_REF,
    "--mirror": "refs/" + ANY_REF,
    "--tags": TAGS_PREFIX + ANY_REF,
    "--follow-tags": TAGS_PREFIX + ANY_REF,
}
# Options that move only the refs that are named.
_NARROW: Final = frozenset(
    {
        "-d",
        "--delete",
        "-f",
        "--force",
        "--force-with-lease",
        "--force-if-includes",
        "-u",
        "--set-upstream",
        "--atomic",
        "-n",
        "--dry-run",
        "-q",
        "--quiet",
        "-v",
        "--verbose",
        "--progress",
        "--thin",
        "--no-verify",
    }
)


def _not_reported() -> str:
    return ""


def parse_moved_refs(text: str, branch: Callable[[], str] = _not_reported) -> tuple[str, ...]:
    """Return the full names of the refs that git moves on the remote for `text`.

    `text` is what follows the remote in `git push`: names, refspecs and options. A plain name is a
    branch. A name with `*` stands for several refs. `branch` returns the reported branch of HEAD,
    and is called only for HEAD. Empty for a text without words.
    """
    words = [word for word in _BLANKS.split(text) if word]
    if not words:
        return ()
    names_moved: list[str] = []
    of_tag = False
    for at, word in enumerate(words):
        if of_tag:
            names_moved.append(_full_name(TAGS_PREFIX + word))
            of_tag = False
        elif word == "tag" and at + 1 < len(words):
            of_tag = True
        elif word.startswith("-"):
            option = word.partition("=")[0]
            if option not in _NARROW:
                names_moved.append(_WIDE.get(word, ANY_REF))
        else:
            names_moved.append(_parse_refspec(word, branch))
    unique = tuple(dict.fromkeys(names_moved))
    # Options alone push the refs that the repository's configuration names.
    unread = (
        not unique
        or ANY_REF in unique
        or len(unique) > MAX_REFS
        or len(" ".join(unique)) > MAX_REFS_CHARACTERS
    )
    return (ANY_REF,) if unread else unique


def _parse_refspec(word: str, branch: Callable[[], str]) -> str:
    source, colon, target = word.removeprefix("+").rpartition(":")
    if colon:
        return _full_name(target) if target else (ANY_REF if source else HEADS_PREFIX + ANY_REF)
    if target in ("HEAD", "@"):
        current = branch()
        return (
            _full_name(current if current.startswith(HEADS_PREFIX) else HEADS_PREFIX + current)
            if current
            else ANY_REF
        )
    return _full_name(target)


def _full_name(name: str) -> str:
    """Return the full name of one ref or pattern of refs; ANY for an invalid name."""
    if name.count("*") == 1 and name.startswith("refs/"):
        return name if _is_ref_name(name.replace("*", "x")) else ANY_REF
    if name == "HEAD" or not _is_ref_name(name):
        return ANY_REF
    if name.startswith("refs/"):
        return name
    return f"refs/{name}" if name.startswith(_ROOTS) else HEADS_PREFIX + name


def _is_ref_name(name: str) -> bool:
    return name not in ("", "@", "refs") and not (_NO_NAME.search(name) or _ENCODED.search(name))


def canonical_refs(text: str, stored: str) -> str:
    """Return a text that two spellings of the same refs share.

    That is what git moves, else what was sent. `stored` is an effect's `moved_refs`.
    """
    return stored if stored and "*" not in stored else text


def are_refs_exact(refs: Sequence[str]) -> bool:
    """Return True when each of `refs` names exactly one ref."""
    return all("*" not in ref for ref in refs)


def possible_refs(ref: str, text: str) -> tuple[str, ...]:
    """Return the refs that git may move where `parse_moved_refs` returns `ref` for `text`.

    A short name can match several refs: a plain name can be a tag, and `heads/new` a branch called
    heads/new.
    """
    rest, words = ref.removeprefix("refs/"), _SEPARATORS.split(text)
    if ref in words or "*" in ref or rest == ref:
        return (ref,)
    if rest.startswith(_ROOTS) and rest in words:
        return ref, HEADS_PREFIX + rest, TAGS_PREFIX + rest
    name = ref.removeprefix(HEADS_PREFIX)
    return ref, TAGS_PREFIX + name, f"refs/{name}", f"refs/remotes/{name}"


def parse_searched_refs(text: str) -> tuple[str, ...]:
    """Return the full names of the branches and tags that a search for `text` means."""
    candidates = (
        candidate
        for ref in parse_moved_refs(text)
        if ref != ANY_REF
        for candidate in possible_refs(ref, text)
    )
    return tuple(
        dict.fromkeys(
            ref for ref in candidates if ref.startswith((HEADS_PREFIX, TAGS_PREFIX)) or ref in text
        )
    )


def ref_names(ref: str) -> tuple[str, ...]:
    """Return a ref's names for rules and patterns: full, without `refs/`, short."""
    rest = ref.removeprefix("refs/")
    root = next((root for root in _ROOTS if rest.startswith(root)), "")
    return tuple(dict.fromkeys((ref, rest, rest[len(root) :])))


@lru_cache(maxsize=1024)
def fold_ref(text: str) -> str:
    """Return `text` as a host compares it that ignores case, marks and letter width."""
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


def find_worst_class(
    refs: Iterable[str], production: Sequence[str], protected: Sequence[str]
) -> str:
    """Return the worst class of `refs` by globs; empty for no refs.

    In a glob `*` also matches `/`. A ref that stands for several, or that has letters easily
    mistaken for others, has the worst class.
    """
    patterns = {"production": production, "protected": protected, "other": (ANY_REF,)}
    classes = {_classify_ref(ref, patterns) for ref in refs}
    return next((ref_class for ref_class in patterns if ref_class in classes), "")


def _classify_ref(ref: str, patterns: dict[str, Sequence[str]]) -> str:
    spelled = [fold_ref(name) for name in _ref_spellings(ref)]
    if "*" in ref or not spelled[0].isascii():
        return next(ref_class for ref_class, globs in patterns.items() if globs)
    return next(
        ref_class
        for ref_class, globs in patterns.items()
        if any(fnmatchcase(name, fold_ref(glob)) for glob in globs for name in spelled)
    )


def _ref_spellings(ref: str) -> Iterator[str]:
    """Yield a ref's names and its branch's: `main` of refs/remotes/origin/main."""
    yield from ref_names(ref)
    if not ref.startswith((HEADS_PREFIX, TAGS_PREFIX)):
        parts = ref.split("/")
        yield from ("/".join(parts[at:]) for at in range(2, len(parts)))
    short = ref_names(ref)[-1]
    yield from (short.removeprefix(remote) for remote in _REMOTES if short.startswith(remote))
