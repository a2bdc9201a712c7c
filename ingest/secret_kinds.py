"""What a secret looks like: token shapes, telling names in text, telling names of fields.

Every pattern takes time in proportion to the text, whatever the text: a repeat is bounded, or possessive and over
characters among which no second start can lie, so that no stretch of text is read more than a few times.
The first thing in a pattern is a literal or a set of characters, which the engine looks for quickly.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

Accepts = Callable[["re.Match[str]"], bool]


class Kind(NamedTuple):
    """One kind of secret. The pattern's group `secret` is what is taken out, if `accepts` agrees.

    One of `hints` stands in every text that the pattern matches, in lower case when `folded`, and no hint holds a
    character that JSON escapes; so a hint is also found in the canonical JSON around the text.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    accepts: Accepts | None = None
    folded: bool = False


# Any of these letters before any of these endings: "tassword" is let in to keep the search for a start quick.
_NAME = r"[aApPsStT](?i:assword|asswd|assphrase|ecret|oken|pi[-_. ]?key|rivate[-_. ]?key|ccess[-_. ]?key)"
_NAME_HINTS = (
    *("assword", "asswd", "assphrase", "secret", "token"),
    *(f"{ending}{joint}key" for ending in ("pi", "ate", "ess") for joint in ("", "-", "_", ".", " ")),
)
_ASSIGNED = rf"{_NAME}[\"'\\]{{0,3}}[ \t]{{0,8}}(?:=>|:=|[:=])[ \t]{{0,8}}"
_BARE = r"(?P<secret>[^\s\"'\\,;&<>(){}\[\]|`]{6,}+)"

_PLACEHOLDER = re.compile(
    r"\*+|[xX.]+|<[^<>]*>|\$.*|%.*|\{.*\}|\[?redacted\]?|null|none|undefined|true|false|string|required|optional",
    re.IGNORECASE | re.DOTALL,
)
_CODE = re.compile(
    r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+"  # an attribute
    r"|_*[a-z][a-z0-9]*(?:_[a-z0-9]+)+_*|_*[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+_*",  # a name in snake case
    re.ASCII,
)
# Names that end like a secret's but hold none: places in a list, words of a language model.
_HARMLESS_BEFORE = re.compile(
    r"(?:page|next|continuation|sync|cancellation|cancel|eos|bos|pad|unk|sep|cls|mask|stop|special|added"
    r"|per|max|total|num)[-_. ]?\Z",
    re.IGNORECASE,
)


def _token(name: str, hint: str | tuple[str, ...], prefix: str, rest: str, *, edge: str = "A-Za-z0-9") -> Kind:
    # At the left edge no letter or digit, unless it is an escape's inside JSON inside a string ("\\nghp_…").
    starts = rf"(?:(?<![{edge}]{prefix})|(?<=\\[nrt]{prefix}))"
    hints = (hint,) if isinstance(hint, str) else hint
    return Kind(name, hints, re.compile(f"(?P<secret>{prefix}{starts}{rest})", re.ASCII))


def _told(name: str, hint: str | tuple[str, ...], pattern: str, accepts: Accepts | None = None) -> Kind:
    hints = (hint,) if isinstance(hint, str) else hint
    return Kind(name, hints, re.compile(pattern, re.ASCII), accepts, folded=True)


def _has_letter_and_digit(match: "re.Match[str]") -> bool:
    secret = match.group("secret")
    return any(map(str.isdigit, secret)) and any(map(str.isalpha, secret))


def _is_basic(match: "re.Match[str]") -> bool:
    secret = match.group("secret")
    try:
        return b":" in base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except binascii.Error:
        return False


def _is_authorization(match: "re.Match[str]") -> bool:
    return match.group("scheme") is not None or _has_letter_and_digit(match)


def _is_quoted_value(match: "re.Match[str]") -> bool:
    secret = match.group("secret")
    return (
        not _PLACEHOLDER.fullmatch(secret)
        and any(map(str.isdigit, secret))
        and "://" not in secret
        and not secret.startswith(("/", "./", "~"))
        and not _is_harmless_name(match)
    )


def _is_bare_value(match: "re.Match[str]") -> bool:
    secret = match.group("secret")
    following = match.string[match.end() : match.end() + 1]
    return (
        following not in ("(", "[")
        and secret[0] not in "=!@$%*/~.?:#-"
        and _has_letter_and_digit(match)
        and "://" not in secret
        and not _PLACEHOLDER.fullmatch(secret)
        and not _CODE.fullmatch(secret.rstrip(".:"))
        and not _is_harmless_name(match)
    )


def _is_harmless_name(match: "re.Match[str]") -> bool:
    return _HARMLESS_BEFORE.search(match.string, max(0, match.start() - 20), match.start()) is not None


def _is_user_password(match: "re.Match[str]") -> bool:
    return not match.group("secret").isdigit() and "curl" in match.string


def _is_url_password(match: "re.Match[str]") -> bool:
    return not _PLACEHOLDER.fullmatch(match.group("secret"))


_WORD = "[A-Za-z0-9_-]"
_BODY = r"(?:[A-Za-z0-9+/=\s\\:,.()@]|-(?!----)){40,}+"  # base64, its headers, and the marks of a diff

TOKENS = (
    _token("gatebook", "gbk_", "gbk_", rf"[A-Za-z0-9]{{8}}_{_WORD}{{43}}"),
    _token("github", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "gh[pousr]_", "[A-Za-z0-9]{36,}+"),
    _token("github_pat", "github_pat_", "github_pat_", "[A-Za-z0-9_]{22,}+"),
    _token("gitlab", ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-"), "gl", rf"(?:pat|dt|rt|ptt|cbt)-{_WORD}{{20,}}+"),
    _token("aws_access_key", ("AKIA", "ASIA"), "A[KS]IA", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token("anthropic", "sk-ant-", "sk-ant-", rf"{_WORD}{{20,}}+"),
    _token(
        "openai_project",
        ("sk-proj-", "sk-svcacct-", "sk-admin-"),
        "sk-",
        rf"(?:proj|svcacct|admin)-{_WORD}{{20,}}+",
    ),
    _token("openai", "sk-", "sk-", "[A-Za-z0-9]{32,}+"),
    _token("slack", "xox", "xox", "[abeoprs]-[A-Za-z0-9-]{10,}+"),
    _token("slack", "xapp-", "xapp-", "[A-Za-z0-9-]{10,}+"),
    _token(
        "slack_webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/",
        r"(?:services|workflows|triggers)/[\w/-]{20,}+",
    ),
    _token("npm", "npm_", "npm_", "[A-Za-z0-9]{36}"),
    _token("pypi", "pypi-", "pypi-", rf"{_WORD}{{40,}}+"),
    _token("google", "AIza", "AIza", rf"{_WORD}{{35}}"),
    _token("stripe", ("k_live_", "k_test_"), "[rs]k_", "(?:live|test)_[A-Za-z0-9]{16,}+"),
    _token("stripe", "whsec_", "whsec_", "[A-Za-z0-9]{16,}+"),
    # Its length is open and a second one could start inside, so the edge is firmer.
    _token("jwt", "eyJ", "eyJ", rf"{_WORD}{{8,}}+\.eyJ{_WORD}{{8,}}+\.{_WORD}{{8,}}+", edge="A-Za-z0-9_-"),
)

KINDS = (
    Kind(
        "private_key",
        ("PRIVATE KEY",),
        re.compile(
            rf"-----BEGIN (?P<secret>[A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----{_BODY}"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?)"
        ),
    ),
    _told(
        "cookie",
        "cookie",
        r"[cC](?i:ookie)[\"']? {0,4}: {0,4}[\"']?(?P<secret>[^\r\n\"'\\ =;]{1,128}=[^\r\n\"'\\]{6,}+)",
        _has_letter_and_digit,
    ),
    *TOKENS,
    _told(
        "aws_secret_key",
        "secret",
        r"[aAsS](?i:ws_?secret_?(?:access_?)?(?:key)?|ecret_?access_?key)[\"'\\]{0,3}[\s:=,]{1,8}[\"'\\]{0,3}"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    _told(
        "aws_secret_key",  # it often stands behind its access key, which has been replaced by now
        ("[redacted:aws_access_key:", "akia", "asia"),
        r"\[redacted:aws_access_key:[0-9a-f]{12}\][^A-Za-z0-9/+\[\]]{1,12}(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    _told(
        "authorization",
        "authorization",
        r"[aA](?i:uthorization[\"'\\]{0,3} {0,4}[:=] {0,4}[\"'\\]{0,3}(?P<scheme>(?:bearer|basic|token|apikey) {1,4})?)"
        r"(?P<secret>[\w.~+/=-]{8,}+)",
        _is_authorization,
    ),
    _told("bearer", "bearer ", r"[bB](?i:earer) {1,4}(?P<secret>[\w.~+/=-]{16,}+)", _has_letter_and_digit),
    _told("basic", "basic ", r"[bB](?i:asic) {1,4}(?P<secret>[A-Za-z0-9+/]{8,}+={0,2})", _is_basic),
    _told(
        "url_password",
        "://",
        r"://[^\s/:@\"'<>\\]{0,128}:(?P<secret>[^\s/@\"'<>\\]{1,256})@",
        _is_url_password,
    ),
    _told(
        "user_password",
        "curl",
        r"[ \t]-(?:u|-user)[ =]{0,2}[\"']?[^\s:\"'/+%]{1,64}:(?P<secret>[^\s\"'/\\\[]{4,}+)",
        _is_user_password,
    ),
    _told(
        "assigned",
        _NAME_HINTS,
        rf"{_ASSIGNED}\\?(?P<quote>[\"'])(?P<secret>[^\"'\\\s]{{6,}}+)(?=\\?(?P=quote))",
        _is_quoted_value,
    ),
    _told("assigned", _NAME_HINTS, rf"{_ASSIGNED}{_BARE}", _is_bare_value),
    _told(
        "assigned",
        _NAME_HINTS,
        rf"--(?i:[a-z0-9]{{1,16}}-){{0,3}}{_NAME}(?: {{1,4}}|=)[\"']?{_BARE}",
        _is_bare_value,
    ),
)

_FIELD = re.compile(
    r"(?P<name>authorization|cookie|credentials?|password|passwd|passphrase|secret|token"
    r"|(?:api|private|access)[-_. ]?key)(?:[-_. ]?value)?\Z"
)

# What every hint above and every telling field name holds, said with as few looks at the text as possible. A look with
# `in` costs about a fifth of a microsecond per 500 characters.
_EXACT = ("gbk_", "github_pat_", "sk-", "xox", "xapp-", "hooks.slack.com/", "npm_", "pypi-", "whsec_", "eyJ")
_EXACT_SETS = (
    re.compile("gh[pousr]_").search,
    re.compile("gl(?:pat|dt|rt|ptt|cbt)-").search,
    re.compile("A(?:[KS]IA|Iza)").search,
    re.compile("k_(?:live|test)_").search,
    re.compile(r"://[^\s/@\"]{1,400}@").search,
)
_FOLDED = ("assw", "assphrase", "secret", "token", "authorization", "cookie", "credential", "bearer ", "basic ", "curl")
_KEY = re.compile("key(?:(?<=[ies]key)|(?<=[ies][-_. ]key))")


def has_hint(text: str) -> bool:
    """Whether a text, or the canonical JSON of a value, may hold something that a pattern or a field's name tells."""
    return ALL_HINTS.in_text(text)


class Hints(NamedTuple):
    """Some of the looks that `has_hint` takes: those that can find something in a text known to hold others' texts."""

    exact: tuple[str, ...]
    sets: tuple[Callable[[str], object], ...]
    folded: tuple[str, ...]
    key: bool

    def in_text(self, text: str) -> bool:
        """Whether any of these looks finds something."""
        if any(hint in text for hint in self.exact) or any(search(text) for search in self.sets):
            return True
        if not self.folded and not self.key:
            return False
        lowered = text.lower()
        return any(hint in lowered for hint in self.folded) or (self.key and _KEY.search(lowered) is not None)

    def within(self, text: str) -> "Hints":
        """The looks that find something in `text`: in no part of it can the others."""
        lowered = text.lower()
        return Hints(
            tuple(hint for hint in self.exact if hint in text),
            tuple(search for search in self.sets if search(text)),
            tuple(hint for hint in self.folded if hint in lowered),
            self.key and _KEY.search(lowered) is not None,
        )


ALL_HINTS = Hints(_EXACT, _EXACT_SETS, _FOLDED, key=True)


def known_token(secret: str) -> str | None:
    """The kind whose shape the whole of `secret` has, if any."""
    for kind in TOKENS:
        if kind.pattern.fullmatch(secret):
            return kind.name
    return None


def is_placeholder(text: str) -> bool:
    """Whether a value only stands where a secret would: stars, `<password>`, `${PASSWORD}`, `null`."""
    return _PLACEHOLDER.fullmatch(text.strip()) is not None


def field_kind(name: str, siblings: Mapping[str, Any]) -> str | None:
    """The kind of secret that a field of this name holds, None when the name does not tell of one."""
    kind = _kind_of_name(name[-64:].lower())
    # Language models report their output as {"token": "the", "logprob": -0.1}.
    if kind == "token" and ("logprob" in siblings or "top_logprobs" in siblings):
        return None
    return kind


@lru_cache(maxsize=4096)
def _kind_of_name(name: str) -> str | None:
    match = _FIELD.search(name)
    if match is None or _HARMLESS_BEFORE.search(name, 0, match.start()):
        return None
    return re.sub(r"[-_. ]", "_", match.group("name"))
