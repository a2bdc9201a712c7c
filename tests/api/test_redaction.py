"""Secrets are redacted before anything is stored, and ordinary text is not changed."""

import base64
import json
import re
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.redaction.patterns import KINDS
from api.redaction.redact import might_contain_secret, redact_value
from api.strictjson.canonical_json import to_canonical_text
from tests.matrices import count_examples

KEY = b"the project's own key, 32 bytes."
LETTERS = string.ascii_letters + string.digits


def _made(length: int, seed: int = 1, alphabet: str = LETTERS) -> str:
    # Composed from pieces, so that no scanner takes this file for a leak.
    return "".join(
        alphabet[(seed * 31 + index * 17 + index * index) % len(alphabet)]
        for index in range(length)
    )


UPPER = string.ascii_uppercase + "234567"
PEM = (
    "-----BEGIN RSA PRIVATE "
    + "KEY-----\n"
    + _made(64)
    + "\n"
    + _made(64, 2)
    + "\n-----END RSA PRIVATE "
    + "KEY-----"
)
JWT = "eyJ" + _made(20) + "." + "eyJ" + _made(40, 2) + "." + _made(43, 3)

# kind: (the text in a payload, the part that must be redacted)
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

HEX = "0123456789abcdef"


def _hex(length: int, seed: int = 1) -> str:
    return _made(length, seed, HEX)


def _upper(length: int, seed: int = 1) -> str:
    return _made(length, seed, UPPER)


def _whole(*forms: str) -> list[tuple[str, str]]:
    return [(form, form) for form in forms]


def _in(text: str, secret: str) -> tuple[str, str]:
    """Return a text with `{}` in place of the secret."""
    return text.format(secret), secret


# Further forms by kind: the text in a payload, and the part that must be redacted.
FORMS: dict[str, list[tuple[str, str]]] = {
    "huggingface": _whole("hf_" + _made(34), "api_org_" + _made(34)),
    "sendgrid": _whole("SG." + _made(22) + "." + _made(43, 2)),
    "google_oauth": _whole("ya29." + _made(60), "GOCSPX-" + _made(28), "1//0" + _made(60)),
    "vault": _whole("hvs." + _made(90), "hvb." + _made(140), "hvr." + _made(60)),
    "digitalocean": _whole(*(f"do{kind}_v1_" + _hex(64) for kind in "opr")),
    "databricks": _whole("dapi" + _hex(32)),
    "twilio": _whole("SK" + _hex(32)),
    "mailgun": _whole("key-" + _hex(32)),
    "shopify": _whole(*(f"shp{kind}_" + _hex(32) for kind in ("at", "ca", "pa", "ss"))),
    "square": _whole("sq0atp-" + _made(22), "sq0csp-" + _made(43)),
    "facebook": _whole("EAAC" + _made(100), "EAAA" + _made(60)),
    "linear": _whole("lin_api_" + _made(40)),
    "notion": _whole("ntn_" + _made(46), "secret_" + _made(43)),
    "figma": _whole("figd_" + _made(40)),
    "airtable": _whole("pat" + _made(14) + "." + _hex(64)),
    "postman": _whole("PMAK-" + _hex(24) + "-" + _hex(34)),
    "planetscale": _whole(
        "pscale_tkn_" + _made(43), "pscale_pw_" + _made(43), "pscale_oauth_" + _made(43)
    ),
    "grafana": _whole("glsa_" + _made(32) + "_" + _hex(8), "glc_" + _made(80)),
    "sentry": _whole("sntrys_" + _made(120), "sntryu_" + _hex(64)),
    "newrelic": _whole("NRAK-" + _upper(27)),
    "dynatrace": _whole("dt0c01." + _upper(24) + "." + _upper(64)),
    "pulumi": _whole("pul-" + _hex(40)),
    "doppler": _whole("dp.pt." + _made(43), "dp.st.prd." + _made(43)),
    "rubygems": _whole("rubygems_" + _hex(48)),
    "onepassword": _whole(
        "ops_eyJ" + _made(260),
        f"A3-{_upper(6)}-{_upper(11)}-{_upper(5)}-{_upper(5, 2)}-{_upper(5, 3)}",
    ),
    "age": _whole("AGE-SECRET-KEY-1" + _upper(58)),
    "alibaba": _whole("LTAI" + _made(20)),
    "openrouter": _whole("sk-or-v1-" + _hex(64)),
    "groq": _whole("gsk_" + _made(52)),
    "xai": _whole("xai-" + _made(80)),
    "perplexity": _whole("pplx-" + _made(48)),
    "replicate": _whole("r8_" + _made(37)),
    "fly": _whole("fo1_" + _made(43), "fm2_" + _made(120), "fm1r_" + _made(120)),
    "docker": _whole("dckr_pat_" + _made(27), "dckr_oat_" + _made(27)),
    "atlassian": _whole("ATATT3x" + _made(180), "ATBB" + _made(32)),
    "artifactory": _whole("AKCp" + _made(69), "cmVmdGtu" + _made(56)),
    "heroku": _whole("HRKU-AA" + _made(58)),
    "supabase": _whole("sbp_" + _hex(40), "sb_secret_" + _made(31)),
    "brevo": _whole("xkeysib-" + _hex(64) + "-" + _made(16)),
    "clojars": _whole("CLOJARS_" + _made(60, alphabet=HEX)),
    "openshift": _whole("sha256~" + _made(43)),
    "discord": [_in("discord bot {}", "M" + _made(23) + "." + _made(6) + "." + _made(38))],
    "discord_webhook": [
        ("https://" + (s := "discord.com/api/webhooks/" + "1" * 18 + "/" + _made(68)), s)
    ],
    "telegram": _whole("123456789:AA" + _made(33)),
    "terraform": _whole(_made(14) + ".atlasv1." + _made(67)),
    "azure_ad": _whole(_made(3) + "8Q~" + _made(34)),
    "azure_storage": [
        _in(
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core",
            _made(86) + "==",
        ),
        _in('"account_key": "{}"', _made(86) + "=="),
    ],
    "azure_sas": [_in("?sv=2022-11-02&ss=b&se=2026-01-01&sig={}", _made(43) + "%3D")],
    "signed_url": [
        _in("?X-Amz-Expires=60&X-Amz-Signature={}", _hex(64)),
        _in("&X-Goog-Signature={}", _hex(128)),
    ],
    "netrc": [_in("machine git.example.org login robot password {}", "hunter2secret")],
    "gitlab": _whole(
        *(f"gl{kind}-" + _made(30) for kind in ("ft", "imt", "agent", "oas", "soat", "ffct"))
    )
    + _whole("GR1348941" + _made(20)),
    "aws_access_key": _whole("ABIA" + _upper(16), "ACCA" + _upper(16)),
    "user_password": [
        _in("mysql -u root -p{} shop", "S3cretpass"),
        _in("sshpass -p {} ssh host", "S3cretpass"),
        _in("sshpass -p '{}' ssh host", "correcthorse"),
        _in("docker login -u robot -p {} registry.example.org", "S3cretpass"),
    ],
    "assigned": [
        _in("DB_PASS={}", "x7Kq92mmPl"),
        _in("export MYSQL_PWD={}", "x7Kq92mmPl"),
        _in("MYSQL_PWD='{}'", "correcthorse"),
        _in("POSTGRES_PASSWORD={}", "correcthorse"),
        _in("PGPASSWORD={} psql", "93847561"),
        _in("Server=db;Uid=sa;Pwd={};", "x7Kq92mmPl"),
        _in("Server=db;User Id=sa;Password={};", "x7Kq92mmPl"),
        _in("Endpoint=sb://x;SharedAccessKeyName=root;SharedAccessKey={}", _made(43) + "="),
        _in("db_pass: {}", "x7Kq92mmPl"),
        _in("Ocp-Apim-Subscription-Key: {}", _hex(32)),
        _in("ENCRYPTION_KEY={}", _made(32)),
        _in("signing-key: {}", _made(32)),
        _in("//registry.example.org/:_authToken={}", _made(36)),
    ],
    "jwt": [("-" + JWT, JWT)],
}
FURTHER = [(kind, text, secret) for kind, forms in FORMS.items() for text, secret in forms]

PLACES: dict[str, Callable[[str], Any]] = {
    "args": lambda text: {"arguments": {"command": f"run {text} now"}},
    "nested": lambda text: {"arguments": {"steps": [{"run": [f"a\n{text}\nb"]}]}},
    "url": lambda text: {"arguments": {"url": f"https://api.example.org/v1?x={text}"}},
    "header": lambda text: {"arguments": {"headers": {"X-Thing": text, "Accept": "*/*"}}},
    "diff": lambda text: {
        "arguments": {"diff": "@@ -1 +1 @@\n-old\n" + "".join(f"+{x}\n" for x in text.split("\n"))}
    },
    "rationale": lambda text: {"why": f"I used ({text}), since it was there."},
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_of_every_kind_is_redacted_in_every_place(kind: str) -> None:
    text, secret = SECRETS[kind]
    for place, put in PLACES.items():
        value = put(text)
        assert might_contain_secret(to_canonical_text(value)), place
        redacted, count = redact_value(value, KEY)
        written = json.dumps(redacted)
        assert secret not in written, place
        assert count >= 1, place
        marks = re.findall(r"\[redacted:[a-z_]+:[0-9a-f]{12}\]", written)
        assert len(marks) == count, place
        assert redact_value(redacted, KEY) == (redacted, 0), place


@pytest.mark.parametrize(("kind", "text", "secret"), FURTHER)
def test_a_secret_of_every_further_form_is_redacted_in_every_place(
    kind: str, text: str, secret: str
) -> None:
    for place, put in PLACES.items():
        for value in (
            put(text),
            {"arguments": json.dumps(put(f"first\n{text}\nlast"))},
        ):
            assert might_contain_secret(to_canonical_text(value)), place
            redacted, count = redact_value(value, KEY)
            assert secret not in json.dumps(redacted), place
            assert count >= 1, place
            assert redact_value(redacted, KEY) == (redacted, 0), place


def test_a_removed_line_of_a_diff_hides_no_token() -> None:
    diff = f"@@ -1,2 +1 @@\n-{JWT}\n--- {JWT}\n-token = {JWT}\n+{JWT}"
    redacted, count = redact_value({"diff": diff, "first": f"-{JWT}"}, KEY)
    assert count == 5
    assert JWT not in json.dumps(redacted)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_in_json_in_a_string_is_redacted_too(kind: str) -> None:
    text, secret = SECRETS[kind]
    redacted, count = redact_value(
        {"arguments": json.dumps({"script": f"first\n{text}\nlast"})}, KEY
    )
    assert secret not in redacted["arguments"]
    assert count >= 1


def test_there_are_enough_kinds() -> None:
    assert len(SECRETS) >= 18
    assert {kind.name for kind in KINDS} == set(SECRETS) | set(FORMS)
    assert len(FURTHER) >= 80


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
TELLING += [
    "client_secret",
    "api_key",
    "apiKey",
    "x-api-key",
    "private_key",
    "privateKey",
    "DB_PASSWORD",
    "GH_TOKEN",
]


@pytest.mark.parametrize("field", TELLING)
def test_a_field_named_like_a_secret_loses_its_text(field: str) -> None:
    value = {"outer": [{field: "correct horse"}]}
    assert might_contain_secret(to_canonical_text(value))
    redacted, count = redact_value(value, KEY)
    assert count == 1
    assert re.fullmatch(r"\[redacted:[a-z_]+:[0-9a-f]{12}\]", redacted["outer"][0][field])
    for harmless in (7, True, None, "", {"type": "string"}):
        assert redact_value({field: harmless}, KEY) == ({field: harmless}, 0)


def test_numbers_and_nested_values_under_a_telling_name_are_cleaned() -> None:
    value = {
        "password": 12345678,
        "db_pass": "correct horse",
        "mysql_pwd": "correct horse",
        "api_key": {"value": "correct horse", "type": "string"},
        "secret": {"data": {"value": "battery staple"}, "stringData": ["one more"], "name": "db"},
        "credentials": {"user": "rita", "password": 4711},
        "account_key": "battery staple",
        "headers": [{"name": "Authorization", "value": {"raw": "correct horse"}}],
    }
    assert might_contain_secret(to_canonical_text(value))
    redacted, count = redact_value(value, KEY)
    written = json.dumps(redacted)
    for secret in ("correct horse", "battery staple", "one more", "12345678", "4711"):
        assert secret not in written
    assert count == 9
    assert redacted["api_key"]["type"] == "string"
    assert (redacted["secret"]["name"], redacted["credentials"]["user"]) == ("db", "rita")
    assert redact_value(redacted, KEY) == (redacted, 0)


def test_numbers_and_nested_values_that_are_no_secrets_are_left() -> None:
    value = {
        "token": 128000,
        "max_token": {"value": 8192},
        "password": {"type": "string", "minLength": 12, "description": "at least 12 characters"},
        "secret": 0,
        "access_key": True,
        "PASS_TO_PASS": "[]",
        "pwd": "/srv/app",
        "pass": "all of them",
    }
    assert redact_value(value, KEY) == (value, 0)


def test_lists_and_recorded_headers_under_a_telling_name_are_cleaned() -> None:
    redacted, count = redact_value(
        {"set-cookie": ["a=1; Path=/", "b=2"], "n": [{"name": "Cookie", "value": "c=3"}]}, KEY
    )
    assert count == 3
    assert "a=1" not in json.dumps(redacted)
    assert redacted["n"][0]["name"] == "Cookie"


def test_a_secret_used_as_a_key_is_redacted() -> None:
    text, _ = SECRETS["github"]
    redacted, count = redact_value({text: 1}, KEY)
    assert count == 1
    assert text not in redacted


def test_equal_secrets_give_equal_marks_and_other_projects_other_ones() -> None:
    text, _ = SECRETS["github"]
    redacted, count = redact_value(
        {"a": f"use {text}", "b": [text], "token": text, "authorization": f"Bearer {text}"}, KEY
    )
    assert count == 4
    assert redacted["a"] == f"use {redacted['b'][0]}"
    assert redacted["token"] == redacted["b"][0] == redacted["authorization"]
    other, _ = redact_value([text], b"another key")
    assert other[0] != redacted["b"][0]


def test_the_input_is_not_changed_and_a_clean_value_is_returned_itself() -> None:
    text, _ = SECRETS["npm"]
    value = {"a": [text, {"b": text}]}
    before = json.dumps(value)
    redact_value(value, KEY)
    assert json.dumps(value) == before
    clean = {"a": ["b"]}
    assert redact_value(clean, KEY)[0] is clean


def test_the_key_must_not_be_empty() -> None:
    with pytest.raises(ValueError, match="key"):
        redact_value({}, b"")


def test_nesting_costs_no_recursion() -> None:
    value: Any = SECRETS["jwt"][0]
    for _ in range(50_000):
        value = [value]
    redacted, count = redact_value(value, KEY)
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
    "FAIL_TO_PASS=test_a FAIL_TO_PASS: tests/a1.py::b2 and all_pass = 12 of 12, OLDPWD=/srv/app1",
    "hf_hub_download(repo_id), gsk_config_for_all_the_world_to_see, glsa_ is a prefix, SG.is not "
    "one",
    "MSSQL_PASSWORD=$PASSWORD SECRET=${SECRET} DB_PASS=<password> MYSQL_PWD=%s PASSWORD=required",
    "the mysql client takes -pport or --port; mkdir -p a/b1/c2; docker login with a password",
    "https://example.org/?sig=short&design=a1b2c3 and a signature=none of X-Amz-Signature=",
    "SKU0123 SKILL key-value key-0123 pul-l dapi dapi_v2 EAA 1//0 12:AA r8_ fm2_ "
    "https://a//01234567",
    "class SECRET_KEY_BASE: pass  # PASSWORD=get_password() SECRET=settings.SECRET",
    "uuid 0192f3a4-7d1e-7c3a-9b1e-2f6a5d0c8e11-key 0192f3a4_7d1e_7c3a_9b1e_2f6a5d0c8e11_token",
    "machine learning with login screens and a password field: type password twice",
]


@pytest.mark.parametrize("text", BENIGN)
def test_ordinary_text_passes_unchanged(text: str) -> None:
    assert redact_value({"arguments": {"text": text}}, KEY) == ({"arguments": {"text": text}}, 0)


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
    assert redact_value(value, KEY) == (value, 0)


PIECES = st.sampled_from(
    [text for text, _ in SECRETS.values()]
    + [text for _, text, _ in FURTHER]
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


@settings(max_examples=count_examples(60, 300), deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_redacting_twice_changes_nothing_and_clean_looking_text_is_clean(text: str) -> None:
    for value in ({"text": text}, {"token": text}, {text: "x"}):
        once, count = redact_value(value, KEY)
        assert redact_value(once, KEY) == (once, 0)
        if not might_contain_secret(to_canonical_text(value)):
            assert count == 0


@settings(max_examples=count_examples(50, 200), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
    )
)
def test_any_json_value_keeps_its_shape(value: Any) -> None:
    redacted, _ = redact_value(value, KEY)
    assert type(redacted) is type(value)
    assert redact_value(redacted, KEY)[1] == 0


def test_every_open_repeat_in_a_pattern_is_possessive() -> None:
    # Only an unbounded repeat with backtracking makes the time grow more than linearly.
    for kind in KINDS:
        repeats = re.findall(
            r"(?:\{\d+,\}|(?<!\\)(?<!\[)[*+])(.?)",
            re.sub(r"\[(?:\\.|[^\]\\])*\]", "C", kind.pattern.pattern),
        )
        assert set(repeats) <= {"+", ""}, kind.name
        assert re.search(r"\{\d+,\}(?!\+)", kind.pattern.pattern) is None, kind.name
        bounded = [int(most) for most in re.findall(r"\{\d+,(\d+)\}", kind.pattern.pattern)]
        assert max(bounded, default=0) <= 256, kind.name
