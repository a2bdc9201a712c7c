"""Git refs: which refs a git argument moves, and their class. Pure; no Django.

The class stamped at arrival, rules, exemptions, pages and search all use this one parser. What it
cannot parse is `ANY`, which has the worst class of its repository.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

CLASSES: Final = ("production", "protected", "other")  # the worst first
ANY: Final = "*"  # git may move any ref of the repository
MOST: Final = 8  # refs in one text; more are read as ANY
LONGEST: Final = 300  # characters of all refs together, the length of Effect.moved_refs
HEADS: Final = "refs/heads/"
TAGS: Final = "refs/tags/"
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
    "--all": HEADS + ANY,
    "--branches": HEADS + ANY,
    "--mirror": "refs/" + ANY,
    "--tags": TAGS + ANY,
    "--follow-tags": TAGS + ANY,
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


def moved(text: str, branch: Callable[[], str] = _not_reported) -> tuple[str, ...]:
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
            names_moved.append(_full_name(TAGS + word))
            of_tag = False
        elif word == "tag" and at + 1 < len(words):
            of_tag = True
        elif word.startswith("-"):
            option = word.partition("=")[0]
            if option not in _NARROW:
                names_moved.append(_WIDE.get(word, ANY))
        else:
            names_moved.append(_parse_refspec(word, branch))
    unique = tuple(dict.fromkeys(names_moved))
    # Options alone push the refs that the repository's configuration names.
    unread = not unique or ANY in unique or len(unique) > MOST or len(" ".join(unique)) > LONGEST
    return (ANY,) if unread else unique


def _parse_refspec(word: str, branch: Callable[[], str]) -> str:
    source, colon, target = word.removeprefix("+").rpartition(":")
    if colon:
        return _full_name(target) if target else (ANY if source else HEADS + ANY)
    if target in ("HEAD", "@"):
        current = branch()
        return (
            _full_name(current if current.startswith(HEADS) else HEADS + current)
            if current
            else ANY
        )
    return _full_name(target)


def _full_name(name: str) -> str:
    """Return the full name of one ref or pattern of refs; ANY for an invalid name."""
    if name.count("*") == 1 and name.startswith("refs/"):
        return name if _is_ref_name(name.replace("*", "x")) else ANY
    if name == "HEAD" or not _is_ref_name(name):
        return ANY
    if name.startswith("refs/"):
        return name
    return f"refs/{name}" if name.startswith(_ROOTS) else HEADS + name


def _is_ref_name(name: str) -> bool:
    return name not in ("", "@", "refs") and not (_NO_NAME.search(name) or _ENCODED.search(name))


def identity(text: str, stored: str) -> str:
    """Return a text that two spellings of the same refs share.

    That is what git moves, else what was sent. `stored` is an effect's `moved_refs`.
    """
    return stored if stored and "*" not in stored else text


def is_clear(refs: Sequence[str]) -> bool:
    """Return True when each of `refs` names exactly one ref."""
    return all("*" not in ref for ref in refs)


def possible(ref: str, text: str) -> tuple[str, ...]:
    """Return the refs that git may move where `moved` returns `ref` for `text`.

    A short name can match several refs: a plain name can be a tag, and `heads/new` a branch called
    heads/new.
    """
    rest, words = ref.removeprefix("refs/"), _SEPARATORS.split(text)
    if ref in words or "*" in ref or rest == ref:
        return (ref,)
    if rest.startswith(_ROOTS) and rest in words:
        return ref, HEADS + rest, TAGS + rest
    name = ref.removeprefix(HEADS)
    return ref, TAGS + name, f"refs/{name}", f"refs/remotes/{name}"


def asked(text: str) -> tuple[str, ...]:
    """Return the full names of the branches and tags that a search for `text` means."""
    candidates = (
        candidate for ref in moved(text) if ref != ANY for candidate in possible(ref, text)
    )
    return tuple(
        dict.fromkeys(ref for ref in candidates if ref.startswith((HEADS, TAGS)) or ref in text)
    )


def names(ref: str) -> tuple[str, ...]:
    """Return a ref's names for rules and patterns: full, without `refs/`, short."""
    rest = ref.removeprefix("refs/")
    root = next((root for root in _ROOTS if rest.startswith(root)), "")
    return tuple(dict.fromkeys((ref, rest, rest[len(root) :])))


@lru_cache(maxsize=1024)
def fold(text: str) -> str:
    """Return `text` as a host compares it that ignores case, marks and letter width."""
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


def class_of(refs: Iterable[str], production: Sequence[str], protected: Sequence[str]) -> str:
    """Return the worst class of `refs` by globs; empty for no refs.

    In a glob `*` also matches `/`. A ref that stands for several, or that has letters easily
    mistaken for others, has the worst class.
    """
    patterns = {"production": production, "protected": protected, "other": (ANY,)}
    classes = {_classify_ref(ref, patterns) for ref in refs}
    return next((ref_class for ref_class in patterns if ref_class in classes), "")


def _classify_ref(ref: str, patterns: dict[str, Sequence[str]]) -> str:
    spelled = [fold(name) for name in _ref_spellings(ref)]
    if "*" in ref or not spelled[0].isascii():
        return next(ref_class for ref_class, globs in patterns.items() if globs)
    return next(
        ref_class
        for ref_class, globs in patterns.items()
        if any(fnmatchcase(name, fold(glob)) for glob in globs for name in spelled)
    )


def _ref_spellings(ref: str) -> Iterator[str]:
    """Yield a ref's names and its branch's: `main` of refs/remotes/origin/main."""
    yield from names(ref)
    if not ref.startswith((HEADS, TAGS)):
        parts = ref.split("/")
        yield from ("/".join(parts[at:]) for at in range(2, len(parts)))
    short = names(ref)[-1]
    yield from (short.removeprefix(remote) for remote in _REMOTES if short.startswith(remote))
