"""No-break and thin spaces are typography in prose, and hidden characters where they change a call."""

from typing import Any

import pytest

from approvals.diff.hidden_characters import count_hidden_content, is_prose_argument
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer
from web import untrusted_text

NBSP, NARROW, THIN = "\u00a0", "\u202f", "\u2009"


@pytest.mark.parametrize(
    "arguments",
    [
        {"subject": f"Facture{NBSP}: 24{NARROW}000{NBSP}€"},
        {"body": f"Bonjour Jean{NBSP}Dupont,\n\nÊtes-vous prêt{NARROW}? «{NBSP}Oui{NBSP}»"},
        {"message": f"See §{NBSP}4 and p.{NBSP}12, about 10{THIN}km"},
        {"html": f"<p>Prix{NBSP}: <b>24{NBSP}000</b>{NBSP}€</p>"},
        {"note": f"Release 2.4{NBSP}— ready", "count": 3},
        {"content": f"Der Preis{NBSP}beträgt 5{NBSP}%.", "file_path": "docs/preise.md"},
        {"fields": [{"name": f"Jean{NBSP}Dupont", "amount": f"1{NARROW}200"}]},
        {"price_shown": f"24{NBSP}000 €"},
        {"story": f"Il était une fois{NBSP}: un roi et deux reines"},
    ],
)
def test_spaces_of_prose_are_not_hidden(arguments: Any) -> None:
    assert count_hidden_content(arguments).hidden == 0
    assert all(is_prose_argument(name, arguments[name], arguments) for name in arguments)
    assert "U+" not in "".join(
        untrusted_text.render_untrusted(value, None, prose=True)
        for value in arguments.values()
        if isinstance(value, str)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": f"git push{NBSP}origin main"},
        {"command": f"rm -rf /tmp/x{NBSP}/etc"},
        {"cmd": f"echo 24{NBSP}000"},
        {"file_path": f"/srv/my{NBSP}report.pdf"},
        {"path": f"Rapport{NBSP}final.pdf"},
        {"host": f"north{NBSP}wind.com"},
        {"to": f"jean{NBSP}dupont@northwind.com"},
        {"ref": f"release{NBSP}main"},
        {"branch": f"feature{THIN}x"},
        {"url": f"https://northwind.com/{NBSP}x"},
        {"sql": f"DELETE FROM a WHERE{NBSP}id > 4"},
        {"content": f"x ={NBSP}4 and more words here", "file_path": "app/views.py"},
        {"content": f"name{NBSP}value of things", "command": "tee /etc/hosts"},
        {"body": f"Run `git push{NBSP}origin` now"},
        {"body": f"Open /srv/a{NBSP}b to see it"},
        {"body": f"Use --force{NBSP}now please, it works"},
        {"body": f"two{NBSP}{NBSP}blanks in a row are not typography"},
        {"body": f"{NBSP}at the start"},
        {"anything": f"origin{NBSP}main"},
        {"anything": f"kubectl delete ns{NBSP}x --now"},
        {f"na{NBSP}me": "x"},
        {"body": "zero\u200bwidth and \u202eoverride stay hidden"},
    ],
)
def test_spaces_of_commands_paths_and_code_stay_hidden(arguments: Any) -> None:
    assert count_hidden_content(arguments).hidden > 0


def test_nothing_is_lost_and_other_texts_are_strict() -> None:
    text = f"Prix{NBSP}: 24{NARROW}000{NBSP}€"
    for prose in (True, False):
        pieces = untrusted_text.split_untrusted(text, prose=prose)
        assert "".join(piece.raw for piece in pieces) == text
    assert untrusted_text.count_hidden_characters(text) == 3
    assert untrusted_text.count_hidden_characters(text, prose=True) == 0


@pytest.mark.django_db
def test_card_and_list_are_quiet_about_prose_and_warn_of_commands(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    quiet = inbox.gate(
        inbox.plan(
            "a", arguments={"message": f"Prix{NBSP}: 24{NARROW}000{NBSP}€"}, why=f"Ja{NBSP}!"
        )
    )
    page = rita.client.get(f"/approvals/{quiet.id}/").content.decode()
    assert "hidden character" not in page
    assert "U+00A0" not in page
    listed = rita.client.get("/approvals/").content.decode()
    assert "hidden character" not in listed
    loud = inbox.gate(inbox.plan("b", arguments={"command": f"git push{NBSP}origin main"}))
    page = rita.client.get(f"/approvals/{loud.id}/").content.decode()
    assert "1 hidden character" in page
    assert "[U+00A0]" in page
    assert "1 hidden character" in rita.client.get("/approvals/").content.decode()
