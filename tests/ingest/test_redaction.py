"""Secrets leave payloads before anything is stored, and ordinary text stays as it is."""

import base64
import json
import re
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.canonical import canonical_text
from ingest.redaction import might_hold_secret, redact
from ingest.secret_kinds import KINDS

KEY = b"the project's own key, 32 bytes."
LETTERS = string.ascii_letters + string.digits


def _made(length: int, seed: int = 1, alphabet: str = LETTERS) -> str:
    # Written in pieces and made up here, so that no scanner takes this file for a leak.
    return "".join(alphabet[(seed * 31 + index * 17 + index * index) % len(alphabet)] for index in range(length))


UPPER = string.ascii_uppercase + "234567"
PEM = (
    "-----BEGIN RSA PRIVATE " + "KEY-----\n" + _made(64) + "\n" + _made(64, 2) + "\n-----END RSA PRIVATE " + "KEY-----"
)
JWT = "eyJ" + _made(20) + "." + "eyJ" + _made(40, 2) + "." + _made(43, 3)

# kind: (the text as it stands in a payload, the part of it that must be gone)
SECRETS: dict[str, tuple[str, str]] = {
    "github": (s := "ghp_" + _made(36), s),
    "github_pat": (s := "github_pat_" + _made(22) + "_" + _made(59, 3), s),
    "gitlab": (s := "glpat-" + _made(20), s),
    "aws_access_key": (s := "AKIA" + _made(16, alphabet=UPPER), s),
    "aws_secret_key": ("aws_secret_access_key=" + (s := _made(40, 7)), s),
    "openai": (s := "sk-" + _made(48), s),
    "openai_project": (s := "sk-proj-" + _made(60), s),
    "anthropic": (s := "sk-ant-api03-" + _made(90), s),
    "slack": (s := "xoxb-" + "123456789012-" + _made(24), s),
    "slack_webhook": ("https://" + (s := "hooks.slack.com/services/T0000/B0000/" + _made(24)), s),
    "npm": (s := "npm_" + _made(36), s),
    "pypi": (s := "pypi-" + "AgEIcHlwaS5vcmc" + _made(90), s),
    "google": (s := "AIza" + _made(35), s),
    "stripe": (s := "sk_live_" + _made(24), s),
    "private_key": (PEM, _made(64)),
    "jwt": (JWT, JWT),
    "bearer": ("Bearer " + (s := _made(40, 5)), s),
    "basic": ("Basic " + (s := base64.b64encode(b"robot:" + _made(12).encode()).decode()), s),
    "url_password": ("https://robot:" + (s := _made(14, 4)) + "@git.example.org/a.git", s),
    "gatebook": (s := "gbk_" + _made(8) + "_" + _made(43), s),
    "assigned": ("password=" + (s := "Tr0ub4dor&3x".replace("&", "-")), s),
    "cookie": ("Cookie: session=" + (s := _made(30, 6)), s),
    "authorization": ("Authorization: " + (s := _made(30, 8)), s),
    "user_password": ("curl -u robot:" + (s := _made(12, 9)), s),
}

PLACES: dict[str, Callable[[str], Any]] = {
    "args": lambda text: {"arguments": {"command": f"run {text} now"}},
    "nested": lambda text: {"arguments": {"steps": [{"run": [f"a\n{text}\nb"]}]}},
    "url": lambda text: {"arguments": {"url": f"https://api.example.org/v1?x={text}"}},
    "header": lambda text: {"arguments": {"headers": {"X-Thing": text, "Accept": "*/*"}}},
    "diff": lambda text: {"arguments": {"diff": "@@ -1 +1 @@\n-old\n" + "".join(f"+{x}\n" for x in text.split("\n"))}},
    "rationale": lambda text: {"why": f"I used ({text}), since it was there."},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_of_every_kind_is_gone_from_every_place(kind: str, place: str) -> None:
    text, secret = SECRETS[kind]
    value = PLACES[place](text)
    assert might_hold_secret(canonical_text(value))
    redacted, count = redact(value, KEY)
    written = json.dumps(redacted)
    assert secret not in written
    assert count >= 1
    assert len(re.findall(r"\[redacted:[a-z_]+:[0-9a-f]{12}\]", written)) == count
    assert redact(redacted, KEY) == (redacted, 0)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_inside_json_inside_a_string_is_gone_too(kind: str) -> None:
    text, secret = SECRETS[kind]
    redacted, count = redact({"arguments": json.dumps({"script": f"first\n{text}\nlast"})}, KEY)
    assert secret not in redacted["arguments"]
    assert count >= 1


def test_there_are_enough_kinds() -> None:
    assert len(SECRETS) >= 18
    assert {kind.name for kind in KINDS} == set(SECRETS)


TELLING = [
    "password",
    "passwd",
    "passphrase",
    "Authorization",
    "cookie",
    "Set-Cookie",
    "token",
    "access_token",
    "secret",
]
TELLING += ["client_secret", "api_key", "apiKey", "x-api-key", "private_key", "privateKey", "DB_PASSWORD", "GH_TOKEN"]


@pytest.mark.parametrize("field", TELLING)
def test_a_field_named_like_a_secret_loses_its_text(field: str) -> None:
    value = {"outer": [{field: "correct horse"}]}
    assert might_hold_secret(canonical_text(value))
    redacted, count = redact(value, KEY)
    assert count == 1
    assert re.fullmatch(r"\[redacted:[a-z_]+:[0-9a-f]{12}\]", redacted["outer"][0][field])
    for harmless in (7, True, None, "", {"type": "string"}):
        assert redact({field: harmless}, KEY) == ({field: harmless}, 0)


def test_lists_and_recorded_headers_under_a_telling_name_are_cleaned() -> None:
    redacted, count = redact({"set-cookie": ["a=1; Path=/", "b=2"], "n": [{"name": "Cookie", "value": "c=3"}]}, KEY)
    assert count == 3
    assert "a=1" not in json.dumps(redacted)
    assert redacted["n"][0]["name"] == "Cookie"


def test_a_secret_used_as_a_key_is_gone() -> None:
    text, _ = SECRETS["github"]
    redacted, count = redact({text: 1}, KEY)
    assert count == 1
    assert text not in redacted


def test_equal_secrets_give_equal_marks_and_other_projects_other_ones() -> None:
    text, _ = SECRETS["github"]
    redacted, count = redact({"a": f"use {text}", "b": [text], "token": text, "authorization": f"Bearer {text}"}, KEY)
    assert count == 4
    assert redacted["a"] == f"use {redacted['b'][0]}"
    assert redacted["token"] == redacted["b"][0] == redacted["authorization"]
    other, _ = redact([text], b"another key")
    assert other[0] != redacted["b"][0]


def test_the_given_value_is_not_changed_and_clean_ones_come_back_themselves() -> None:
    text, _ = SECRETS["npm"]
    value = {"a": [text, {"b": text}]}
    before = json.dumps(value)
    redact(value, KEY)
    assert json.dumps(value) == before
    clean = {"a": ["b"]}
    assert redact(clean, KEY)[0] is clean


def test_the_key_must_not_be_empty() -> None:
    with pytest.raises(ValueError, match="key"):
        redact({}, b"")


def test_nesting_costs_no_recursion() -> None:
    value: Any = SECRETS["jwt"][0]
    for _ in range(50_000):
        value = [value]
    redacted, count = redact(value, KEY)
    while isinstance(redacted, list):
        redacted = redacted[0]
    assert count == 1
    assert redacted.startswith("[redacted:jwt:")


BENIGN = [
    "commit 9f2c1e0d4b7a8f6e5d4c3b2a19087f6e5d4c3b2a",
    "0192f3a4-7d1e-7c3a-9b1e-2f6a5d0c8e11",
    "SELECT id, token_count FROM usage WHERE password_hash IS NOT NULL AND secret = %s",
    "password = request.POST['password']",
    "password: str | None = None, token: Optional[str] = None",
    "token = self.lexer2.next_token(kind1)",
    "api_key = os.environ['API_KEY']; secret=settings.SECRET_KEY_V2; token=user_token_1",
    'form = Form({"password": "required", "token": "<token>", "secret": "${SECRET_1}"})',
    "if password == expected1 and token != other2: pass",
    "https://example.org:8443/a/b?page=2&next_page_token=abc123def456",
    "git push git@github.com:acme/app.git main:main",
    "postgres://db.example.org:5432/app and http://[::1]:8000/",
    "https://robot:${PASSWORD}@example.org and https://user:<password>@example.org",
    "Basic authentication is better than bearer authentication, says section 4.2",
    "The bearer of this letter; basic research; private key cryptography; token ring 802.5",
    "docker run --user 1000:1000 -u 0:0 image; date -u +%H:%M:%S; curl -s https://example.org",
    "def secret_santa(api, key): return {'sk-learn': 'task-12', 'risk_test': 'disk_live'}",
    'if line.startswith("-----BEGIN RSA PRIVATE ' + 'KEY-----"):\n    raise ValueError(line)',
    "sha256:" + "0a1b2c3d" * 8 + " data:image/png;base64," + _made(200),
    "Cookie: see section 3 of RFC 6265. Authorization: required",
    '{"usage": {"total_tokens": 12345678, "max_token": "8192tokens"}}',
    "eyJ is how a token begins; ghp_ is a prefix, AKIA another, sk-proj- a third, xoxb- one more",
    "[redacted:password:0f3a5b7c9d1e] and token=[redacted:github:0f3a5b7c9d1e]",
]


@pytest.mark.parametrize("text", BENIGN)
def test_ordinary_text_passes_unchanged(text: str) -> None:
    assert redact({"arguments": {"text": text}}, KEY) == ({"arguments": {"text": text}}, 0)


def test_names_that_only_sound_like_secrets_are_left() -> None:
    value = {
        "next_page_token": "abc123def456",
        "eos_token": "<|endoftext|>",
        "logprobs": [{"token": "understanding", "logprob": -0.1}],
        "total_tokens": "12345678",
        "key": "build-42",
        "effect_key": "call_9f2:0011223344556677:0",
        "token": "${TOKEN}",
    }
    assert redact(value, KEY) == (value, 0)


PIECES = st.sampled_from(
    [text for text, _ in SECRETS.values()]
    + [name for kind in KINDS for name in kind.hints]
    + [
        "password",
        "=",
        ":",
        '"',
        "'",
        "\\n",
        "\n",
        " ",
        "[redacted:",
        "]",
        "://",
        "@",
        "--",
        "-u ",
        "a1",
        "x" * 20,
        "é",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_redacting_twice_changes_nothing_and_clean_looking_text_is_clean(text: str) -> None:
    for value in ({"text": text}, {"token": text}, {text: "x"}):
        once, count = redact(value, KEY)
        assert redact(once, KEY) == (once, 0)
        if not might_hold_secret(canonical_text(value)):
            assert count == 0


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_any_json_value_keeps_its_shape(value: Any) -> None:
    redacted, _ = redact(value, KEY)
    assert type(redacted) is type(value)
    assert redact(redacted, KEY)[1] == 0


def test_every_open_repeat_in_a_pattern_is_possessive() -> None:
    # What makes time grow out of proportion is an unbounded repeat that can give back what it took.
    for kind in KINDS:
        repeats = re.findall(
            r"(?:\{\d+,\}|(?<!\\)(?<!\[)[*+])(.?)", re.sub(r"\[(?:\\.|[^\]\\])*\]", "C", kind.pattern.pattern)
        )
        assert set(repeats) <= {"+", ""}, kind.name
        assert re.search(r"\{\d+,\}(?!\+)", kind.pattern.pattern) is None, kind.name
        bounded = [int(most) for most in re.findall(r"\{\d+,(\d+)\}", kind.pattern.pattern)]
        assert max(bounded, default=0) <= 256, kind.name
