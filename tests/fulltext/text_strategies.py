"""Strategies for text as agents may send it: many scripts, markup and hostile characters."""

from typing import Final

from hypothesis import strategies as st

PIECES: Final = (
    *(
        "git push origin main",
        "deploy.run",
        "pytest -q tests/x_y.py::test_z",
        "exit 3",
        "ORA-00942",
        "v2.8.1",
    ),
    *(
        "https://forge.example/web/pull/17?a=b#c",
        "ann.lee@example.org",
        "C:\\Users\\ann",
        "2026-11-22T04:00:00Z",
    ),
    *(
        "İstanbul",
        "ISPARTA",
        "ısı",
        "Straße",
        "STRASSE",
        "ﬁle",
        "ＧＩＴ",
        "cafe\u0301",
        "café",
        "Å\u0323",
        "½",
        "①",
    ),
    *(
        "支払い方法",
        "サーバー停止",
        "ﾃｽﾄ",
        "결제",
        "हिन्दी",
        "العربية",
        "ไทย",
        "ʼn",
        "ǅ",
        "ꭰ",
        "𝔘𝔫𝔦",
        "🤖👩\u200d💻",
    ),
    *(
        "<script>alert(1)</script>",
        "\"><img src=x onerror='1'>",
        "'; DROP TABLE ledger_effect; --",
        "{{ 7*7 }}",
    ),
    *(
        "\u202egpj.exe",
        "pass\u200bword",
        "de\u00adploy",
        "\x00\x01\x1b[31m",
        "\u2028",
        "a" * 70,
        "NEAR(a b)",
        "':*",
    ),
)
TEXTS: Final = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(st.characters(codec="utf-8"), max_size=12)),
    max_size=6,
).map(" ".join) | st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
