"""Patterns of secrets: token forms, revealing names in text and fields.

Every pattern takes linear time for any text: each repeat is bounded, or possessive over characters
that cannot start another match, so that no text is read more than a few times. Each pattern begins
with a literal or a character set, which the engine finds quickly.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

Accepts = Callable[["re.Match[str]"], bool]
Search = Callable[[str], object]


class Kind(NamedTuple):
    """One kind of secret. The group `secret` is redacted if `accepts` agrees.

    Every text that the pattern matches contains one of `hints`, in lower case if `folded`. Hints
    contain no character that JSON escapes, so they also occur in the canonical JSON of the text.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    accepts: Accepts | None = None
    folded: bool = False

    @property
    def searches(self) -> tuple[Search, ...]:
        """A search function per hint; faster than `in`, which is slow for three letters."""
        return tuple(
            re.compile(pattern).search
            for pattern in _SEARCHES.get(self.hints, map(re.escape, self.hints))
        )


# Any of these letters before any of these endings. Also matches "tassword", which keeps the search
# for a start fast.
_NAME = (
    r"[aApPsStT](?i:assword|asswd|assphrase|ecret|oken"
    r"|pi[-_. ]?key|rivate[-_. ]?key|ccess[-_. ]?key"
    r"|ccount[-_]?key|torage[-_]?key|igning[-_]?key|uth[-_]?key|tion[-_]?key)"
)
_NAME_HINTS = (
    "assword",
    "asswd",
    "assphrase",
    "secret",
    "token",
    *(
        f"{ending}{joint}key"
        for ending in ("pi", "ate", "ess")
        for joint in ("", "-", "_", ".", " ")
    ),
    *(
        f"{ending}{joint}key"
        for ending in ("ccount", "torage", "igning", "uth", "ption")
        for joint in ("", "-", "_")
    ),
)
# Short names indicate a secret only after another word: `pwd` alone is a folder, `pass` a result.
_SHORT_NAME_HINTS = tuple(f"{joint}{name}" for joint in "-_;" for name in ("pass", "pwd"))
_VARIABLE_HINTS = (*_SHORT_NAME_HINTS, "assword=", "asswd=", "assphrase=", "secret=")
_SHORT_NAME_LOOKS = ("pass(?<=[-_;]pass)", "w(?<=[-_;]pw)d")
# Equivalent to these hints, with fewer searches that begin with rarer letters.
_SEARCHES = {
    _NAME_HINTS: (
        "ass(?:w|phrase)",
        "cre(?<=secre)t",
        "k(?<=tok)en",
        "key(?:(?<=[iesgh]key)|(?<=[iesgh][-_. ]key)"
        "|(?<=(?:count|ption)key)|(?<=(?:count|ption)[-_]key))",
    ),
    _SHORT_NAME_HINTS: _SHORT_NAME_LOOKS,
    _VARIABLE_HINTS: (
        *_SHORT_NAME_LOOKS,
        "=(?:(?<=assword=)|(?<=asswd=)|(?<=assphrase=)|(?<=secret=))",
    ),
}
_ASSIGNED = rf"{_NAME}[\"'\\]{{0,3}}[ \t]{{0,8}}(?:=>|:=|[:=])[ \t]{{0,8}}"
_BARE = r"(?P<secret>[^\s\"'\\,;&<>(){}\[\]|`]{6,}+)"

_PLACEHOLDER = re.compile(
    r"\*+|[xX.]+|<[^<>]*>|\$.*|%.*|\{.*\}|\[?redacted\]?"
    r"|null|none|undefined|true|false|string|required|optional",
    re.IGNORECASE | re.DOTALL,
)
_CODE = re.compile(
    r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+"  # an attribute
    r"|_*[a-z][a-z0-9]*(?:_[a-z0-9]+)+_*|_*[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+_*",  # a name in snake case
    re.ASCII,
)
# Names that end like a secret's but are harmless: page cursors, tokens of a language model.
_HARMLESS_BEFORE = re.compile(
    r"(?:page|next|continuation|sync|cancellation|cancel|eos|bos|pad|unk|sep|cls|mask|stop|special"
    r"|added|per|max|total|num)[-_. ]?\Z",
    re.IGNORECASE,
)


def _token_kind(
    name: str, hint: str | tuple[str, ...], prefix: str, rest: str, *, edge: str = "A-Za-z0-9"
) -> Kind:
    # No letter or digit on the left, unless it belongs to an escape in nested JSON ("\\nghp_…").
    starts = rf"(?:(?<![{edge}]{prefix})|(?<=\\[nrt]{prefix}))"
    hints = (hint,) if isinstance(hint, str) else hint
    return Kind(name, hints, re.compile(f"(?P<secret>{prefix}{starts}{rest})", re.ASCII))


def _named_kind(
    name: str, hint: str | tuple[str, ...], pattern: str, accepts: Accepts | None = None
) -> Kind:
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
    return (
        _HARMLESS_BEFORE.search(match.string, max(0, match.start() - 20), match.start()) is not None
    )


def _is_value_of_variable(match: "re.Match[str]") -> bool:
    """Accept the value of a variable in capitals, unless it looks like code."""
    secret = match.group("secret")
    return (
        match.string[match.end() : match.end() + 1] not in ("(", "[")
        and secret[0] not in "=!@$%*/~.?:#-+"
        and "://" not in secret
        and not _PLACEHOLDER.fullmatch(secret)
        and not _CODE.fullmatch(secret.rstrip(".:"))
        and not (secret.isupper() and not any(map(str.isdigit, secret)))
    )


def _is_user_password(match: "re.Match[str]") -> bool:
    return not match.group("secret").isdigit() and "curl" in match.string


def _is_mysql_password(match: "re.Match[str]") -> bool:
    return _has_letter_and_digit(match) and "mysql" in match.string


def _is_url_password(match: "re.Match[str]") -> bool:
    return not _PLACEHOLDER.fullmatch(match.group("secret"))


_WORD, _HEX = "[A-Za-z0-9_-]", "[0-9a-f]"
_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_GITLAB = "pat|dt|rt|ptt|cbt|ft|imt|agent|oas|soat|ffct"
_BODY = r"(?:[A-Za-z0-9+/=\s\\:,.()@]|-(?!----)){40,}+"  # base64, its headers, and diff markers

TOKENS = (
    _token_kind("gatebook", "gbk_", "gbk_", rf"[A-Za-z0-9]{{8}}_{_WORD}{{43}}"),
    _token_kind(
        "github", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "gh[pousr]_", "[A-Za-z0-9]{36,}+"
    ),
    _token_kind("github_pat", "github_pat_", "github_pat_", "[A-Za-z0-9_]{22,}+"),
    _token_kind(
        "gitlab",
        tuple(f"gl{kind}-" for kind in _GITLAB.split("|")),
        "gl",
        rf"(?:{_GITLAB})-{_WORD}{{20,}}+",
    ),
    _token_kind("gitlab", "GR1348941", "GR1348941", rf"{_WORD}{{20,}}+"),
    _token_kind(
        "aws_access_key",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        "A(?:KIA|SIA|BIA|CCA)",
        "[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    _token_kind("anthropic", "sk-ant-", "sk-ant-", rf"{_WORD}{{20,}}+"),
    _token_kind(
        "openai_project",
        ("sk-proj-", "sk-svcacct-", "sk-admin-"),
        "sk-",
        rf"(?:proj|svcacct|admin)-{_WORD}{{20,}}+",
    ),
    _token_kind("openai", "sk-", "sk-", "[A-Za-z0-9]{32,}+"),
    _token_kind("slack", "xox", "xox", "[abeoprs]-[A-Za-z0-9-]{10,}+"),
    _token_kind("slack", "xapp-", "xapp-", "[A-Za-z0-9-]{10,}+"),
    _token_kind(
        "slack_webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/",
        r"(?:services|workflows|triggers)/[\w/-]{20,}+",
    ),
    _token_kind("npm", "npm_", "npm_", "[A-Za-z0-9]{36}"),
    _token_kind("pypi", "pypi-", "pypi-", rf"{_WORD}{{40,}}+"),
    _token_kind("google", "AIza", "AIza", rf"{_WORD}{{35}}"),
    _token_kind("stripe", ("k_live_", "k_test_"), "[rs]k_", "(?:live|test)_[A-Za-z0-9]{16,}+"),
    _token_kind("stripe", "whsec_", "whsec_", "[A-Za-z0-9]{16,}+"),
    _token_kind("huggingface", "hf_", "hf_", "[A-Za-z0-9]{30,}+"),
    _token_kind("huggingface", "api_org_", "api_org_", "[A-Za-z0-9]{30,}+"),
    _token_kind("sendgrid", "SG.", r"SG\.", rf"{_WORD}{{16,64}}\.{_WORD}{{16,100}}"),
    _token_kind("google_oauth", "ya29.", r"ya29\.", rf"{_WORD}{{20,}}+"),
    _token_kind("google_oauth", "GOCSPX-", "GOCSPX-", rf"{_WORD}{{20,}}+"),
    _token_kind("google_oauth", "1//0", "1//0", rf"{_WORD}{{30,}}+"),
    _token_kind("vault", ("hvs.", "hvb.", "hvr."), r"hv[sbr]\.", rf"{_WORD}{{20,}}+"),
    _token_kind("digitalocean", ("doo_v1_", "dop_v1_", "dor_v1_"), "do[opr]_v1_", f"{_HEX}{{64}}"),
    _token_kind("databricks", "dapi", "dapi", f"{_HEX}{{32}}(?![A-Za-z0-9])"),
    _token_kind("twilio", "SK", "SK", f"{_HEX}{{32}}(?![A-Za-z0-9])"),
    _token_kind("mailgun", "key-", "key-", f"{_HEX}{{32}}(?![A-Za-z0-9])"),
    _token_kind(
        "shopify", ("shpat_", "shpca_", "shppa_", "shpss_"), "shp(?:at|ca|pa|ss)_", f"{_HEX}{{32}}"
    ),
    _token_kind("square", ("sq0atp-", "sq0csp-"), "sq0(?:atp|csp)-", rf"{_WORD}{{20,}}+"),
    _token_kind("facebook", "EAA", "EAA", "[A-Z][A-Za-z0-9_-]{50,}+"),
    _token_kind("linear", "lin_api_", "lin_api_", "[A-Za-z0-9]{30,}+"),
    _token_kind("notion", "ntn_", "ntn_", "[A-Za-z0-9]{40,}+"),
    _token_kind("notion", "secret_", "secret_", "[A-Za-z0-9]{43}(?![A-Za-z0-9_])"),
    _token_kind("figma", "figd_", "figd_", rf"{_WORD}{{30,}}+"),
    _token_kind("airtable", ".", "pat", rf"[A-Za-z0-9]{{14}}\.{_HEX}{{64}}"),
    _token_kind("postman", "PMAK-", "PMAK-", f"{_HEX}{{24}}-{_HEX}{{34}}"),
    _token_kind("planetscale", "pscale_", "pscale_", r"(?:tkn|pw|oauth)_[\w=.-]{30,}+"),
    _token_kind("grafana", "glsa_", "glsa_", "[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}"),
    _token_kind("grafana", "glc_", "glc_", "[A-Za-z0-9]{16}[A-Za-z0-9+/]{16,}+={0,3}"),
    _token_kind(
        "sentry", ("sntrys_", "sntryu_"), "sntry[su]_", "[A-Za-z0-9_]{16}[A-Za-z0-9+/=_]{44,}+"
    ),
    _token_kind("newrelic", "NRAK-", "NRAK-", "[A-Z0-9]{27}"),
    _token_kind("dynatrace", "dt0", "dt0", r"[a-z]01\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    _token_kind("pulumi", "pul-", "pul-", f"{_HEX}{{40}}"),
    _token_kind("doppler", "dp.", r"dp\.", r"(?:pt|st|ct|sa)\.[\w.-]{40,}+"),
    _token_kind("rubygems", "rubygems_", "rubygems_", f"{_HEX}{{48}}"),
    _token_kind("onepassword", "ops_eyJ", "ops_eyJ", "[A-Za-z0-9+/_-]{100,}+={0,3}"),
    _token_kind(
        "onepassword",
        "A3-",
        "A3-",
        "[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}",
    ),
    _token_kind("age", "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1", "[A-Z0-9]{58}"),
    _token_kind("alibaba", "LTAI", "LTAI", "[A-Za-z0-9]{16,24}(?![A-Za-z0-9])"),
    _token_kind("openrouter", "sk-or-v1-", "sk-or-v1-", f"{_HEX}{{64}}"),
    _token_kind("groq", "gsk_", "gsk_", "[A-Za-z0-9]{40,}+"),
    _token_kind("xai", "xai-", "xai-", "[A-Za-z0-9]{60,}+"),
    _token_kind("perplexity", "pplx-", "pplx-", "[A-Za-z0-9]{40,}+"),
    _token_kind("replicate", "r8_", "r8_", "[A-Za-z0-9]{37}"),
    _token_kind("fly", "fo1_", "fo1_", rf"{_WORD}{{43}}"),
    _token_kind(
        "fly",
        ("fm1a_", "fm1r_", "fm2_"),
        "fm",
        "(?:1[ar]|2)_[A-Za-z0-9]{16}[A-Za-z0-9+/]{44,}+={0,3}",
    ),
    _token_kind("docker", ("dckr_pat_", "dckr_oat_"), "dckr_[po]at_", rf"{_WORD}{{20,}}+"),
    _token_kind("atlassian", ("ATATT3", "ATCTT3"), "AT[AC]TT3", r"[\w=-]{60,}+"),
    _token_kind("atlassian", "ATBB", "ATBB", "[A-Za-z0-9]{28,}+"),
    _token_kind("artifactory", "AKCp", "AKCp", "[A-Za-z0-9]{60,}+"),
    _token_kind("artifactory", "cmVmdGtu", "cmVmdGtu", "[A-Za-z0-9]{50,}+"),
    _token_kind("heroku", "HRKU-AA", "HRKU-AA", rf"{_WORD}{{50,}}+"),
    _token_kind("supabase", "sbp_", "sbp_", f"{_HEX}{{40}}"),
    _token_kind("supabase", "sb_secret_", "sb_secret_", rf"{_WORD}{{20,}}+"),
    _token_kind("brevo", "xkeysib-", "xkeysib-", f"{_HEX}{{64}}-[A-Za-z0-9]{{16}}"),
    _token_kind("clojars", "CLOJARS_", "CLOJARS_", "[a-z0-9]{60}"),
    _token_kind("openshift", "sha256~", "sha256~", rf"{_WORD}{{43}}"),
    _token_kind(
        "discord_webhook",
        "discord.com/api/webhooks/",
        r"discord\.com/api/webhooks/",
        rf"[0-9]{{15,20}}/{_WORD}{{50,}}+",
    ),
    Kind(
        "telegram",
        (":AA",),
        re.compile(rf"{_EDGE}(?P<secret>[0-9]{{8,10}}:AA{_WORD}{{32,35}})", re.ASCII),
    ),
    Kind(
        "terraform",
        (".atlasv1.",),
        re.compile(rf"{_EDGE}(?P<secret>[A-Za-z0-9]{{14}}\.atlasv1\.[\w=-]{{60,}}+)", re.ASCII),
    ),
    Kind(
        "azure_ad",
        ("Q~",),
        re.compile(rf"{_EDGE}(?P<secret>[\w~.]{{3}}[0-9]Q~[\w~.-]{{31,34}})(?![\w~.-])", re.ASCII),
    ),
    # The length is unbounded and another token could start inside, so the left edge is stricter: at
    # most one hyphen, the marker of a removed line.
    Kind(
        "jwt",
        ("eyJ",),
        re.compile(
            r"(?P<secret>eyJ(?:(?<![A-Za-z0-9_-]eyJ)|(?<=\\[nrt]eyJ)|(?<=[^A-Za-z0-9_-]-eyJ)"
            r"|(?<=\\n-eyJ)|(?<=\A-eyJ))"
            rf"{_WORD}{{8,}}+\.eyJ{_WORD}{{8,}}+\.{_WORD}{{8,}}+)",
            re.ASCII,
        ),
    ),
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
    _named_kind(
        "cookie",
        "cookie",
        r"[cC](?i:ookie)[\"']? {0,4}: {0,4}[\"']?"
        r"(?P<secret>[^\r\n\"'\\ =;]{1,128}=[^\r\n\"'\\]{6,}+)",
        _has_letter_and_digit,
    ),
    *TOKENS,
    _named_kind(
        "discord",
        "discord",
        rf"{_EDGE}(?P<secret>[MNO][A-Za-z0-9_-]{{22,27}}\.[A-Za-z0-9_-]{{6}}"
        r"\.[A-Za-z0-9_-]{27,45})",
    ),
    _named_kind(
        "azure_storage",
        ("accountkey", "account_key", "account-key"),
        r"[aA](?i:ccount[-_]?key)[\"'\\]{0,3}[ \t]{0,8}[:=][ \t]{0,8}[\"'\\]{0,3}"
        r"(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})",
    ),
    _named_kind("azure_sas", "sig=", r"[?&;\"' ]sig=(?P<secret>[A-Za-z0-9%+/]{30,}+={0,2})"),
    _named_kind(
        "signed_url",
        "-signature=",
        r"[xX]-(?i:amz|goog)-(?i:signature)=(?P<secret>[0-9a-fA-F]{32,}+)",
    ),
    _named_kind(
        "aws_secret_key",
        "secret",
        r"[aAsS](?i:ws_?secret_?(?:access_?)?(?:key)?|ecret_?access_?key)"
        r"[\"'\\]{0,3}[\s:=,]{1,8}[\"'\\]{0,3}"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    _named_kind(
        "aws_secret_key",  # often follows its access key, which is already redacted
        ("[redacted:aws_access_key:", "akia", "asia"),
        r"\[redacted:aws_access_key:[0-9a-f]{12}\][^A-Za-z0-9/+\[\]]{1,12}"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    _named_kind(
        "authorization",
        "authorization",
        r"[aA](?i:uthorization[\"'\\]{0,3} {0,4}[:=] {0,4}[\"'\\]{0,3}"
        r"(?P<scheme>(?:bearer|basic|token|apikey) {1,4})?)"
        r"(?P<secret>[\w.~+/=-]{8,}+)",
        _is_authorization,
    ),
    _named_kind(
        "bearer",
        "bearer ",
        r"[bB](?i:earer) {1,4}(?P<secret>[\w.~+/=-]{16,}+)",
        _has_letter_and_digit,
    ),
    _named_kind(
        "basic", "basic ", r"[bB](?i:asic) {1,4}(?P<secret>[A-Za-z0-9+/]{8,}+={0,2})", _is_basic
    ),
    _named_kind(
        "url_password",
        "://",
        r"://[^\s/:@\"'<>\\]{0,128}:(?P<secret>[^\s/@\"'<>\\]{1,256})@",
        _is_url_password,
    ),
    _named_kind(
        "user_password",
        "curl",
        r"[ \t]-(?:u|-user)[ =]{0,2}[\"']?[^\s:\"'/+%]{1,64}:(?P<secret>[^\s\"'/\\\[]{4,}+)",
        _is_user_password,
    ),
    _named_kind(
        "user_password",
        "mysql",
        r"[ \t]-p(?P<secret>[^\s\"'\\-][^\s\"'\\]{3,64})",
        _is_mysql_password,
    ),
    _named_kind(
        "user_password",
        "sshpass",
        r"[sS](?i:shpass)[ \t]{1,4}-p[ \t]{0,4}[\"']?(?P<secret>[^\s\"'\\$\[][^\s\"'\\]{3,64})",
    ),
    _named_kind(
        "user_password",
        "docker login",
        r"docker login[^\n|;&]{0,120}[ \t]-p[ \t]{1,4}[\"']?"
        r"(?P<secret>[^\s\"'\\$\[][^\s\"'\\]{3,64})",
    ),
    _named_kind(
        "netrc",
        "login",
        r"[mM](?i:achine)[ \t]{1,4}[^\s\"\\]{1,100}(?:\s{1,4}|\\n)"
        r"login[ \t]{1,4}[^\s\"\\]{1,64}(?:\s{1,4}|\\n)password[ \t]{1,4}"
        r"(?P<secret>[^\s\"'\\$<\[][^\s\"'\\]{3,64})",
    ),
    _named_kind(
        "assigned",
        _NAME_HINTS,
        rf"{_ASSIGNED}\\?(?P<quote>[\"'])(?P<secret>[^\"'\\\s]{{6,}}+)(?=\\?(?P=quote))",
        _is_quoted_value,
    ),
    _named_kind("assigned", _NAME_HINTS, rf"{_ASSIGNED}{_BARE}", _is_bare_value),
    _named_kind(
        "assigned",
        _NAME_HINTS,
        rf"--(?i:[a-z0-9]{{1,16}}-){{0,3}}{_NAME}(?: {{1,4}}|=)[\"']?{_BARE}",
        _is_bare_value,
    ),
    _named_kind(
        "assigned",
        _SHORT_NAME_HINTS,
        r"(?<!to)(?<!TO)[-_;](?i:pass|pwd)[\"'\\]{0,3}[ \t]{0,8}(?:=>|:=|[:=])"
        rf"[ \t]{{0,8}}\\?[\"']?{_BARE}",
        _is_bare_value,
    ),
    _named_kind(
        "assigned",
        _VARIABLE_HINTS,
        rf"(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|(?<!TO)_PASS|_PWD)=[\"']?{_BARE}",
        _is_value_of_variable,
    ),
)

_FIELD = re.compile(
    r"(?P<name>authorization|cookie|credentials?|password|passwd|passphrase|secret|token"
    r"|(?:api|private|access)[-_. ]?key"
    r"|(?:account|storage|signing|encryption|subscription|auth)[-_]?key"
    # Not every `…_pass`, because tests use such names too.
    r"|(?:(?<=db)|(?<=sql)|(?<=pg)|(?<=smtp)|(?<=user)|(?<=admin)|(?<=root)|(?<=redis)|(?<=ftp)"
    r"|(?<=mail)|(?<=proxy)|(?<=ssh)|(?<=login))[-_]?(?:pass|pwd))(?:[-_. ]?value)?\Z"
)
# In an object with a revealing name, these members hold the secret; others describe it
# ({"type": "string"}).
_VALUE_MEMBERS = frozenset(
    [
        "value",
        "values",
        "data",
        "stringdata",
        "raw",
        "text",
        "plaintext",
        "content",
        "current",
        "new",
        "old",
        "previous",
    ]
)
_MIN_SECRET_NUMBER = 1_000  # smaller numbers are counts, flags or examples

# Covers every hint above and every revealing field name with as few searches as possible. A search
# that begins with a letter or sign takes a fifth of the time of `in` with three letters, about
# 0.4 microseconds per 800 characters. If a prefix ends in a sign, the search is for the sign, then
# for the length of what follows, then for the prefix.
_SIGN_PREFIXES = {
    "_(?=[A-Za-z0-9_-]{16})": [
        "gbk_",
        "gh[pousr]_",
        "github_pat_",
        "npm_",
        "whsec_",
        "k_live_",
        "k_test_",
        "hf_",
        "api_org_",
        "do[opr]_v1_",
        "shpat_",
        "shpca_",
        "shppa_",
        "shpss_",
        "lin_api_",
        "ntn_",
        "figd_",
        "pscale_",
        "glsa_",
        "glc_",
        "sntry[su]_",
        "secret_",
        "rubygems_",
        "gsk_",
        "r8_",
        "fo1_",
        "fm1[ar]_",
        "fm2_",
        "dckr_[po]at_",
        "sbp_",
        "CLOJARS_",
    ],
    r"\.(?=[A-Za-z0-9_-]{16})": [
        r"ya29\.",
        r"hv[sbr]\.",
        r"atlasv1\.",
        r"dt0[a-z]01\.",
        r"pat[A-Za-z0-9]{14}\.",
    ],
}


def _build_sign_pattern(sign: str, prefixes: Iterable[str]) -> str:
    """Build a pattern for prefixes that end in a sign, grouped by last letter."""
    by_letter: dict[str, list[str]] = {}
    for prefix in prefixes:
        by_letter.setdefault(
            re.findall(r"\[[^\]]*\]\{14\}|\[[^\]]*\]|\\?.", prefix)[-2], []
        ).append(prefix)
    last = r"\." if sign.startswith("\\") else sign[0]
    groups = (
        f"(?<={letter.removesuffix('{14}')}{last})(?:{'|'.join(f'(?<={part})' for part in group)})"
        for letter, group in by_letter.items()
    )
    return f"{sign}(?:{'|'.join(groups)})"


_EXACT = (
    *(_build_sign_pattern(sign, prefixes) for sign, prefixes in _SIGN_PREFIXES.items()),
    "A(?:KIA|SIA|BIA|CCA|Iza|KCp|TBB|T[AC]TT3|3-[A-Z0-9]{6}-|GE-SECRET)",
    "x(?:ox[abeoprs]-|app-|ai-|keysib-|(?<=pplx)-)",
    f"K(?:(?<=PMAK)-|(?<=NRAK)-|(?<=SK){_HEX}{{8}})",
    r"G(?:OCSPX-|R1348941|(?<=SG)\.)",
    "k-(?<=sk-)",
    f"gl(?:{_GITLAB})-",
    f"key-{_HEX}{{8}}",
    f"pul-{_HEX}{{8}}",
    "pypi-",
    "q(?<=sq)0",
    r"dp\.[psc][ta]\.",
    "HRKU-",
    "J(?<=eyJ)",
    "LTAI",
    "EAA[A-Z]",
    f"dapi{_HEX}{{8}}",
    "1//0",
    ":AA",
    "~(?:(?<=Q~)|(?<=256~))",
    "V(?<=cmV)mdGtu",
    r"k(?<=hooks\.slack)\.com/",
    "h(?<=/api/webh)ooks/",
    r"://[^\s/@\"]{1,400}@",
)
_FOLDED = (
    "ass(?:w|phrase|(?<=[-_;]pass)|(?<=sshpass))",
    "w(?<=[-_;]pw)d",
    "k(?:(?<=tok)en|(?<=cook)ie|(?<=dock)er login)",
    "cre(?:(?<=secre)t|dential)",
    "z(?<=authoriz)ation",
    "bearer ",
    "basic ",
    "rl(?<=curl)",
    "sc(?<=disc)ord",
    "g(?<=sig)(?:=|nature=)",
    "q(?<=mysq)l",
    "login[ \t]",
    "key(?:(?<=[iesgh]key)|(?<=[iesgh][-_."
    " ]key)|(?<=(?:count|ption)key)|(?<=(?:count|ption)[-_]key))",
)


def matches_any(searches: Iterable[Search], text: str) -> bool:
    """Return whether any search matches. A plain loop is faster than `any`."""
    for search in searches:  # noqa: SIM110
        if search(text):
            return True
    return False


def may_contain_token(text: str) -> bool:
    """Return whether the text may contain one of TOKENS."""
    return matches_any(ALL_HINTS.exact, text)


class Hints(NamedTuple):
    """Searches that find what may be a secret, or those of them for parts of a text."""

    exact: tuple[Search, ...]
    folded: tuple[Search, ...]

    def in_text(self, text: str) -> bool:
        """Return whether any of these searches matches."""
        return matches_any(self.exact, text) or (
            bool(self.folded) and matches_any(self.folded, text.lower())
        )

    def within(self, text: str) -> "Hints":
        """Return the searches that match `text`; the others match no part of it."""
        lowered = text.lower()
        return Hints(
            tuple(search for search in self.exact if search(text)),
            tuple(search for search in self.folded if search(lowered)),
        )


KIND_SEARCHES = tuple((kind, kind in TOKENS, kind.searches) for kind in KINDS)
ALL_HINTS = Hints(
    tuple(re.compile(pattern, re.ASCII).search for pattern in _EXACT),
    tuple(re.compile(pattern, re.ASCII).search for pattern in _FOLDED),
)


def match_token_kind(secret: str) -> str | None:
    """Return the token kind that matches the whole of `secret`, if any."""
    for kind in TOKENS:
        if kind.pattern.fullmatch(secret):
            return kind.name
    return None


def is_placeholder(text: str) -> bool:
    """Return whether a value is a placeholder such as `<password>` or `null`."""
    return _PLACEHOLDER.fullmatch(text.strip()) is not None


def match_field_kind(name: str, siblings: Mapping[str, Any]) -> str | None:
    """Return the kind of secret in a field of this name, if any."""
    kind = _kind_of_name(name[-64:].lower())
    # Language models report their output as {"token": "the", "logprob": -0.1}.
    if kind == "token" and ("logprob" in siblings or "top_logprobs" in siblings):
        return None
    return kind


def contains_secret(name: str) -> bool:
    """Return whether a member of this name holds its object's secret."""
    return name.lower().replace("_", "") in _VALUE_MEMBERS


def is_secret_number(number: int, kind: str) -> bool:
    """Return whether a number is a secret, not a token count or time."""
    return kind not in ("token", "cookie") and abs(number) >= _MIN_SECRET_NUMBER


@lru_cache(maxsize=4096)
def _kind_of_name(name: str) -> str | None:
    match = _FIELD.search(name)
    if match is None or _HARMLESS_BEFORE.search(name, 0, match.start()):
        return None
    return re.sub(r"[-_. ]", "_", match.group("name"))
