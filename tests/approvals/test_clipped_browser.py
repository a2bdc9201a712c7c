"""Overflow, in a real browser: no column is cut off, and nothing is wider than its page."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.approvals.live_fixture import LiveInbox, watched
from tests.matrices import keep_core

pytestmark = pytest.mark.browser

LONG = "sk_" + "x" * 280
# Cells of the last columns that end beyond the table's own region, and backgrounds of tokens
# painted beyond their cell.
CUT = """() => [...document.querySelectorAll("main .scroll")].flatMap(region => {
    const right = region.getBoundingClientRect().right + 0.5
    const late = [...region.querySelectorAll("th, td")].filter(cell => cell.getBoundingClientRect().right > right)
    return late.map(cell => `${cell.dataset.label ?? cell.textContent} ends outside`)
})"""
SPILT = """() => [...document.querySelectorAll("main .ledger .token:not(.is-quiet)")].filter(token => {
    const cell = token.closest("td, th"), box = cell.getBoundingClientRect()
    const inner = box.right - parseFloat(getComputedStyle(cell).paddingRight)
    const clip = token.closest(".untrusted")
    const end = getComputedStyle(clip).overflowX === "visible" ? token : clip
    return end.getBoundingClientRect().right > inner + 1
}).map(token => token.closest("tr").textContent.slice(0, 40))"""
BROKEN = """() => {
    const words = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), broken = []
    for (let node = words.nextNode(); node; node = words.nextNode()) {
        const home = node.parentElement
        if (!home.checkVisibility() || home.closest("svg, .visually-hidden, .agent, option, .run")) continue
        for (const word of node.data.matchAll(/(?<!\\w)[A-Za-z]{3,14}(?!\\w)/g)) {
            const range = document.createRange()
            range.setStart(node, word.index)
            range.setEnd(node, word.index + word[0].length)
            if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) broken.push(word[0])
        }
    }
    return broken
}"""


@pytest.mark.once
@pytest.mark.parametrize("one_in", keep_core([4, 1], [4]))
def test_nothing_is_cut_off_nor_wider_than_its_page(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str], one_in: int
) -> None:
    """In the core each page has one of the two widths."""
    key = f"clipped-{one_in}"
    live_inbox.agent.session(key, title="Tokens without an end", repository="payments-api")
    target = {
        "repository": "payments-api",
        "ref": LONG[:200],
        "environment": "production",
        "resource": LONG,
    }
    arguments = {"command": "pytest " + LONG, LONG[:60]: "\u202e" * 30 + LONG}
    planned = live_inbox.agent.plan(key, key, tool="test.run", arguments=arguments, target=target)
    live_inbox.agent.dispatch(planned)
    live_inbox.agent.acknowledge(planned, outcome="unknown", external_reference=LONG, result=LONG)
    mistaken = live_inbox.agent.plan(
        "deploy", key, tool="test.run", arguments={"command": "\u202enur \u2066tset"}
    )
    live_inbox.agent.dispatch(mistaken)
    live_inbox.agent.acknowledge(mistaken, outcome="error")
    session = live_inbox.server.url + f"/sessions/{planned['session']}/"
    effect = live_inbox.server.url + f"/effects/{planned['id']}/"
    audit = live_inbox.server.url + "/search/?q="
    pages = [
        *(session, session + "resume/", effect, effect + "resolve/", effect + "chain/"),
        *(audit + kind for kind in ("effect", "gate", "session", "event")),
        *(
            live_inbox.server.url + path
            for path in ("/sessions/", "/stuck/", "/tools/", "/journal/", "/approvals/")
        ),
        live_inbox.gate_url("bidi"),
    ]
    defects = []
    for start, width in enumerate((1280, 390)):
        page = live_inbox.enter(
            watched(new_page(viewport={"width": width, "height": 800}), complaints), "alice"
        )
        for url in pages[start % one_in :: one_in]:
            page.goto(url)
            page.wait_for_load_state("networkidle")
            if page.evaluate("document.documentElement.scrollWidth") > width:
                defects.append((width, url, "wider than its window"))
            if width == 1280:
                defects += [
                    (width, url, what) for what in (*page.evaluate(CUT), *page.evaluate(BROKEN))
                ]
            defects += [(width, url, what) for what in page.evaluate(SPILT)]
        page.goto(effect + "resolve/")
        page.locator("[name=answer][value=happened]").check()
        for name in ("rationale", "reference", "evidence"):
            page.locator(f"[name={name}]").fill(LONG)
        page.locator("[name=insists]").check()
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url("**/resolve/confirm/")
        if page.evaluate("document.documentElement.scrollWidth") > width:
            defects.append((width, page.url, "wider than its window"))
    assert not defects, "\n".join(map(str, defects))
