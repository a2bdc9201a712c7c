"""Refs: which refs git moves for what an agent named, and of which class they are. Pure; knows no Django.

One function reads them for the class stamped at arrival, for rules and exemptions, for pages and for search. What it
cannot read is `ANY`, which has the worst class of its repository.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

CLASSES: Final = ("production", "protected", "other")  # the worst first
ANY: Final = "*"  # git may move any ref of the repository
MOST: Final = 8  # refs in one text; more of them are ANY
LONGEST: Final = 300  # characters of all of them, as Effect.moved_refs holds them
HEADS: Final = "refs/heads/"
TAGS: Final = "refs/tags/"
_ROOTS: Final = ("heads/", "tags/", "remotes/")
_REMOTES: Final = ("origin/", "upstream/")  # how agents name the remote whose branch they mean
_BLANKS: Final = re.compile(r"[ \t\r\n\f\v]+")
_SEPARATORS: Final = re.compile(r"[ \t\r\n\f\v:+]")
# git takes these literally; hosts that take refs in addresses, and shells, do not
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\"'`$;&|<>(){}]")
# git check-ref-format
_NO_NAME: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|^[/-]|[/.]$|(?:^|/)\.|\.lock(?:/|$)")
_WIDE: Final = {  # options that name refs
    "--all": HEADS + ANY,
    "--branches": HEADS + ANY,
    "--mirror": "refs/" + ANY,
    "--tags": TAGS + ANY,
    "--follow-tags": TAGS + ANY,
}
_NARROW: Final = frozenset(  # options that move no ref besides those that are named
    [
        *("-d", "--delete", "-f", "--force", "--force-with-lease", "--force-if-includes", "-u", "--set-upstream"),
        *("--atomic", "-n", "--dry-run", "-q", "--quiet", "-v", "--verbose", "--progress", "--thin", "--no-verify"),
    ]
)


def _not_reported() -> str:
    return ""


def moved(said: str, branch: Callable[[], str] = _not_reported) -> tuple[str, ...]:
    """The full names of the refs that git moves on the remote for `said`; a name with `*` stands for several refs.

    `said` is what follows the remote in `git push`: names, refspecs and options. A plain name is a branch. `branch`
    returns the branch that HEAD is said to be, and is called only for HEAD. Empty for a text without any word.
    """
    words = [word for word in _BLANKS.split(said) if word]
    if not words:
        return ()
    found: list[str] = []
    of_tag = False
    for at, word in enumerate(words):
        if of_tag:
            found.append(_named(TAGS + word))
            of_tag = False
        elif word == "tag" and at + 1 < len(words):
            of_tag = True
        elif word.startswith("-"):
            option = word.partition("=")[0]
            if option not in _NARROW:
                found.append(_WIDE.get(word, ANY))
        else:
            found.append(_of_refspec(word, branch))
    unique = tuple(dict.fromkeys(found))
    # Options alone push what the configuration of the repository says.
    unread = not unique or ANY in unique or len(unique) > MOST or len(" ".join(unique)) > LONGEST
    return (ANY,) if unread else unique


def _of_refspec(word: str, branch: Callable[[], str]) -> str:
    source, colon, target = word.removeprefix("+").rpartition(":")
    if colon:
        return _named(target) if target else (ANY if source else HEADS + ANY)
    if target in ("HEAD", "@"):
        current = branch()
        return _named(current if current.startswith(HEADS) else HEADS + current) if current else ANY
    return _named(target)


def _named(name: str) -> str:
    """The full name of one ref or pattern of refs; ANY for what git would not take for one."""
    if name.count("*") == 1 and name.startswith("refs/"):
        return name if _is_name(name.replace("*", "x")) else ANY
    if name == "HEAD" or not _is_name(name):
        return ANY
    if name.startswith("refs/"):
        return name
    return f"refs/{name}" if name.startswith(_ROOTS) else HEADS + name


def _is_name(name: str) -> bool:
    return name not in ("", "@", "refs") and not (_NO_NAME.search(name) or _ENCODED.search(name))


def identity(said: str, stored: str) -> str:
    """What two spellings of the same refs share: what git moves, else what was sent. `stored` is as effects have it."""
    return stored if stored and "*" not in stored else said


def is_clear(refs: Sequence[str]) -> bool:
    """True when each of `refs` is the name of one ref."""
    return all("*" not in ref for ref in refs)


def possible(ref: str, said: str) -> tuple[str, ...]:
    """The refs that git may move where `moved` gives `ref` for `said`: what is not said in full can be in other places.

    A plain name can be that of a tag, and `heads/new` that of a branch heads/new.
    """
    rest, words = ref.removeprefix("refs/"), _SEPARATORS.split(said)
    if ref in words or "*" in ref or rest == ref:
        return (ref,)
    if rest.startswith(_ROOTS) and rest in words:
        return ref, HEADS + rest, TAGS + rest
    name = ref.removeprefix(HEADS)
    return ref, TAGS + name, f"refs/{name}", f"refs/remotes/{name}"


def asked(said: str) -> tuple[str, ...]:
    """The full names of what a search for `said` means: those that `moved` gives, of branches and tags."""
    found = (one for ref in moved(said) if ref != ANY for one in possible(ref, said))
    return tuple(dict.fromkeys(ref for ref in found if ref.startswith((HEADS, TAGS)) or ref in said))


def names(ref: str) -> tuple[str, ...]:
    """How a rule or a pattern may name a ref: in full, without `refs/`, and short."""
    rest = ref.removeprefix("refs/")
    root = next((root for root in _ROOTS if rest.startswith(root)), "")
    return tuple(dict.fromkeys((ref, rest, rest[len(root) :])))


@lru_cache(maxsize=1024)
def fold(text: str) -> str:
    """`text` as a host compares it that ignores case, marks and the width of letters."""
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


def class_of(refs: Iterable[str], production: Sequence[str], protected: Sequence[str]) -> str:
    """The worst class of `refs` by globs; empty where there are none. In a glob `*` also matches `/`.

    A ref that stands for several, and one with letters that can be taken for others, has the worst class there is.
    """
    patterns = {"production": production, "protected": protected, "other": (ANY,)}
    classes = {_class_of(ref, patterns) for ref in refs}
    return next((ref_class for ref_class in patterns if ref_class in classes), "")


def _class_of(ref: str, patterns: dict[str, Sequence[str]]) -> str:
    spelled = [fold(name) for name in _spelled(ref)]
    if "*" in ref or not spelled[0].isascii():
        return next(ref_class for ref_class, globs in patterns.items() if globs)
    return next(
        ref_class
        for ref_class, globs in patterns.items()
        if any(fnmatchcase(name, fold(glob)) for glob in globs for name in spelled)
    )


def _spelled(ref: str) -> Iterator[str]:
    """The names of a ref, and of the branch that it follows or stands for: `main` of refs/remotes/origin/main."""
    yield from names(ref)
    if not ref.startswith((HEADS, TAGS)):
        parts = ref.split("/")
        yield from ("/".join(parts[at:]) for at in range(2, len(parts)))
    short = names(ref)[-1]
    yield from (short.removeprefix(remote) for remote in _REMOTES if short.startswith(remote))
