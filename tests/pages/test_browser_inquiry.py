"""Reading pages in a browser: accessibility, keys, updates, hostile text, no JavaScript."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest
from playwright.sync_api import Page, Route, expect

from tests.api.api_client import Caller
from tests.approvals.live_fixture import still
from tests.config.server import Server
from tests.matrices import keep_core
from tests.pages.sample_data import REFERENCE, SampleIds, fill, permission
from tests.pages.test_frame_browser import enter

pytestmark = pytest.mark.browser

POLL_MS = 5_000  # polling interval of an open page
STATES = ("planned", "dispatched", "acknowledged", "failed", "unknown", "compensated", "superseded")
HOSTILE = (
    " <b>x</b><img src=x onerror=pwned=1><script>pwned=1</script><a href='javascript:pwned=1'>y</a>"
)
HOSTILE += "<div hx-get='/sign-out/' hx-trigger='load'></div>{{7*7}} \u202egpj\u200b"


# Open an incident and add a member and a note.
INCIDENT = """
from django.contrib.auth.models import User
from django.db import transaction
from investigation.incidents import incidents
from display import references
from accounts import projects
project, by, words = projects.ensure_default_project(), User.objects.first(), {words!r}
with transaction.atomic():
    thing = references.find_reference(project, "{session}")
    title = "A push" + words.translate(dict.fromkeys((8238, 8203)))
    incident = incidents.open_incident(project, title[:200], by, key="{session}", first=thing, why="it pushed" + words)
    incidents.add_note(incident, "It was Ann." + words, by, key="{session}")
print(f"/incidents/{{incident.id}}/")
"""


@dataclass
class Site:
    """A server with two sample sets, the second of hostile text, and an agent that writes on."""

    server: Server
    agent: Caller
    sample: SampleIds
    hostile: SampleIds
    incidents: dict[UUID, str]  # URL of the incident that contains a session, by session

    def paths(self, sample: SampleIds) -> list[str]:
        """Return a URL of each kind of reading page."""
        effects = [sample.effects[name] for name in ("ok", "rejected", "dispatched", "superseded")]
        return [
            "/sessions/?mode=leased",
            "/sessions/?status=failed&text=none",
            f"/sessions/{sample.session}/",
            f"/sessions/{sample.session}/?before=1",
            f"/sessions/{sample.session}/timeline/?state=unknown&live=off",
            f"/sessions/{sample.session}/timeline/?view=lanes",
            f"/sessions/{sample.session}/timeline/?view=compact",
            f"/sessions/{sample.session}/tasks/",
            f"/sessions/{sample.session}/artifacts/",
            *(f"/sessions/{sample.session}/{left}/" for left in ("decisions", "handoffs", "state")),
            f"/tasks/{sample.task}/",
            *(f"/effects/{identity}/" for identity in effects),
            f"/effects/{sample.effects['compensated']}/chain/?view=lanes",
            f"/sessions/{self.sample.session}/compare/{self.hostile.session}/",
            f"{self.incidents[sample.session]}?view=table",
            "/search/?q=environment:prod+ref_class:production",
            "/search/?q=session&facets=1",
            "/search/?q=tool:git.push+state:odd",
            "/search/jump/",
            "/search/jump/?id=99999999",
        ]


@pytest.fixture(scope="module")
def site(live_server_process: Server) -> Site:
    """Write two sample sets on the running server."""
    agent = Caller(live_server_process.token("deploy-7"), address=live_server_process.url)
    sample, hostile = fill(agent), fill(agent, HOSTILE, "hostile")
    permission(agent, sample)
    permission(agent, hostile, HOSTILE)
    incidents = {}
    for ids, words in ((sample, ""), (hostile, HOSTILE)):
        incidents[ids.session] = live_server_process.run(
            INCIDENT.format(session=ids.session, words=words)
        ).strip()
    return Site(live_server_process, agent, sample, hostile, incidents)


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Collect console messages and policy violations; fail if there are any."""
    messages: list[str] = []
    yield messages
    assert messages == []


def signed_in(page: Page, site: Site, complaints: list[str]) -> Page:
    """Sign in and collect policy violations, dialogs and errors, except answers 400 and 404."""
    page.on(
        "console",
        lambda event: complaints.append(event.text) if "status of 40" not in event.text else None,
    )
    page.on("pageerror", lambda event: complaints.append(str(event)))
    page.on("dialog", lambda event: complaints.append(event.message))
    page.add_init_script(
        "addEventListener('securitypolicyviolation', event => console.error('policy: ' + "
        "event.violatedDirective))"
    )
    return enter(page, site.server)


@pytest.mark.once
@pytest.mark.parametrize("one_in", keep_core([6, 1], [6]))
def test_hostile_text_runs_nothing(
    site: Site, browser_page: Page, complaints: list[str], one_in: int
) -> None:
    page = signed_in(browser_page, site, complaints)
    requests: list[str] = []
    page.on(
        "request",
        lambda request: requests.append(request.url) if "sign-out" in request.url else None,
    )
    for path in site.paths(site.hostile)[::one_in]:
        page.goto(site.server.url + path)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate("window.pwned") is None, path
        inside = page.locator(".untrusted").locator("script, svg, iframe, img, a[href], div, b")
        assert inside.count() == 0, path
    assert requests == []


@pytest.mark.once
def test_states_are_words_in_grey(site: Site, browser_page: Page, complaints: list[str]) -> None:
    """Keep states readable without colour: the text is the same, each state has a shape."""
    page = signed_in(browser_page, site, complaints)
    just_now = site.agent.plan(
        "just now", str(site.sample.session), tool="mail.send", arguments={"recipients": 1}
    )
    site.agent.dispatch(just_now)  # effects dispatched during setup may be past their deadline
    page.goto(f"{site.server.url}/sessions/{site.sample.session}/")
    page.evaluate("document.documentElement.classList.add('grey')")
    page.emulate_media(forced_colors="active")
    rows = page.locator("#rows tbody")
    shapes = set()
    for state in STATES:
        mark = rows.locator(".state", has_text=re.compile(f"^{state}$")).first
        expect(mark).to_be_visible()
        shapes.add(mark.locator("use").get_attribute("href"))
    assert len(shapes) == len(STATES)


@pytest.mark.once
def test_a_linked_row_is_marked_and_keys_move_from_it(
    site: Site, browser_page: Page, complaints: list[str]
) -> None:
    page = signed_in(browser_page, site, complaints)
    page.goto(f"{site.server.url}/effects/{site.sample.effects['error']}/")
    page.get_by_role("link", name="In session").click()
    row = page.locator("tr.is-marked")
    expect(row).to_have_count(1)
    expect(row).to_be_in_viewport()
    expect(row).to_contain_text("pytest -q error")
    row.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(str(site.sample.effects["error"])))
    before = page.url
    page.wait_for_load_state("load")  # keys are handled by the script
    page.keyboard.press("]")
    expect(page).not_to_have_url(before)
    page.wait_for_load_state("load")
    page.keyboard.press("[")
    expect(page).to_have_url(before)


@pytest.mark.once
def test_the_box_goes_to_a_reference(site: Site, browser_page: Page, complaints: list[str]) -> None:
    page = signed_in(browser_page, site, complaints)
    page.goto(f"{site.server.url}/search/")
    page.keyboard.press("/")
    expect(page.locator("#jump")).to_be_focused()
    page.keyboard.type(REFERENCE)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.server.url}/effects/{site.sample.effects['ok']}/")


def test_updates_arrive_automatically_and_can_be_paused(
    site: Site, browser_page: Page, complaints: list[str]
) -> None:
    page = signed_in(browser_page, site, complaints)
    page.clock.install()
    opened = site.agent.session("live", title="A session that goes on")
    first = site.agent.plan("first", "live", arguments={"command": "git fetch"})
    url = f"{site.server.url}/sessions/{opened['id']}/"
    page.goto(url)
    # On PostgreSQL an update repeats while another test has an older transaction open.
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with page.expect_response(lambda response: "/timeline/" in response.url) as answer:
            page.clock.fast_forward(POLL_MS)
        if answer.value.status == 204:
            break
    assert answer.value.status == 204
    page.locator("#rows").get_by_role("link", name=first["handle"]).focus()
    site.agent.plan("second", "live", arguments={"command": "git rebase"})
    page.clock.fast_forward(POLL_MS)
    expect(page.locator("#rows")).to_contain_text("git rebase")
    expect(page.locator("#rows").get_by_role("link", name=first["handle"])).to_be_focused()
    page.get_by_role("link", name="Pause").click()
    expect(page.get_by_text("paused")).to_be_visible()
    expect(page.locator("main [data-polls]")).to_have_count(0)
    page.get_by_role("link", name="Resume updates").click()
    expect(page.locator("main [data-polls]")).to_have_count(1)


@pytest.mark.once
@pytest.mark.parametrize("status", [None, 503])
def test_a_page_shows_when_it_may_be_out_of_date(
    site: Site, new_page: Callable[..., Page], status: int | None
) -> None:
    def fail(route: Route) -> None:
        if status is None:
            route.abort()
        else:
            route.fulfill(status=status, body="Gatebook is busy")

    page = enter(new_page(), site.server)
    still(page)
    page.goto(f"{site.server.url}/sessions/{site.sample.session}/")
    warning = page.get_by_text("Gatebook has not answered twice")
    page.route("**/timeline/**", fail)
    for _ in range(2):
        expect(warning).to_be_hidden()
        with page.expect_event("requestfailed" if status is None else "requestfinished"):
            page.clock.fast_forward(POLL_MS)
    expect(warning).to_be_visible()
    expect(page.locator("#rows")).not_to_contain_text("busy")
    page.unroute("**/timeline/**")
    page.clock.fast_forward(POLL_MS)
    expect(warning).to_be_hidden()


def test_the_journey_of_an_investigator_without_javascript(
    site: Site, new_page: Callable[..., Page]
) -> None:
    page = enter(new_page(java_script_enabled=False), site.server)
    page.goto(site.server.url)
    page.get_by_role("link", name="Sessions", exact=True).click()
    page.get_by_label("Title or key").fill("Deploy the web shop")
    page.get_by_label("Mode").select_option("leased")
    page.get_by_role("button", name="Filter sessions").click()
    title = re.compile(r"Deploy the web shop\s*$")
    page.locator("tbody tr", has=page.locator("th", has_text=title)).first.get_by_role(
        "link"
    ).first.click()
    page.get_by_label("Only problems").check()
    page.get_by_role("button", name="Filter effects").click()
    page.locator("#rows").get_by_role("row", name=re.compile("pytest -q error")).get_by_role(
        "link"
    ).first.click()
    expect(page.get_by_role("heading", level=2).first).to_contain_text("Acknowledged at")
    page.locator("summary", has_text="Body").first.click()
    expect(page.locator("#facts pre").first).to_be_visible()
    with page.expect_download() as raw:
        page.get_by_role("link", name="Download the plan as stored").click()
    assert "pytest -q error" in raw.value.path().read_text()
    page.locator("#rail").get_by_role("link", name="Search").click()
    page.get_by_label("Query", exact=True).fill("state:failed tool:deploy.run")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator(".timeline tbody tr")).to_have_count(1)
    page.get_by_role("navigation", name="Facets").get_by_role("link", name="deploy-7").click()
    expect(page.get_by_label("Query", exact=True)).to_have_value(
        "state:failed tool:deploy.run agent:deploy-7"
    )
    page.get_by_text("Filters and syntax for effects").click()
    page.get_by_role("button", name="attempts:>1").click()
    expect(page.get_by_label("Query", exact=True)).to_have_value(
        "state:failed tool:deploy.run agent:deploy-7 attempts:>1"
    )
    page.get_by_label("Query", exact=True).fill("state:fialed")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("mark")).to_have_text("fialed")
    expect(page.get_by_label("Query", exact=True)).to_have_value("state:fialed")
    page.get_by_label("Id, key or reference").fill("s_999999")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(
        page.get_by_text("Gatebook searched this project for the handle of a session")
    ).to_be_visible()


def test_bars_are_walked_by_keys_and_show_what_they_are(
    site: Site, browser_page: Page, complaints: list[str]
) -> None:
    page = signed_in(browser_page, site, complaints)
    page.goto(f"{site.server.url}/sessions/{site.sample.session}/")
    bars, card = page.locator("svg.lanes:not(.minimap) a"), page.locator(".lane-card")
    bars.first.focus()
    expect(card).to_be_visible()
    before = card.text_content()
    page.keyboard.press("ArrowRight")
    expect(page.locator("svg.lanes a:focus")).to_have_count(1)
    assert card.text_content() != before
    assert "planned" in (card.text_content() or "")
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.locator("[data-zoom=in]").click()
    page.wait_for_url("**zoom=2**")
    region = page.locator("[data-lanes]")
    assert region.evaluate("each => each.scrollWidth > 1.9 * each.clientWidth")
    region.focus()
    start = region.evaluate("each => each.scrollLeft")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "start => document.querySelector('[data-lanes]').scrollLeft < start", arg=start
    )
    page.emulate_media(media="print")
    assert region.evaluate(
        "each => getComputedStyle(each).overflowX == 'hidden'"  # paper shows what the screen shows
    )


def is_shown(page: Page, selector: str) -> bool:
    return bool(page.locator(selector).first.is_visible())


def test_pages_print_as_records_without_navigation(
    site: Site, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    """A4 between its margins is narrower than the width at which tables fold on a screen."""
    page = signed_in(new_page(viewport={"width": 673, "height": 900}), site, complaints)
    effect = site.sample.effects["ok"]
    query = "tool:git.push"
    pages = {
        f"/sessions/{site.sample.session}/": "#timeline table.ledger",
        f"/sessions/{site.sample.session}/people/": "table.acts",
        f"/effects/{effect}/": "#facts table.ledger",
        f"/search/?q={query}": ".results table.ledger",
        "/sessions/?mode=leased": "table.sessions",
    }
    for path, table in pages.items():
        page.emulate_media(media="screen")
        page.goto(site.server.url + path)
        assert is_shown(page, "#rail"), path
        page.emulate_media(media="print")
        for hidden in ("#rail", "main form", "main nav.choice", "main .button", "main nav.pages"):
            assert page.locator(f"{hidden} >> visible=true").count() == 0, (path, hidden)
        row = page.locator(f"{table} tbody tr").first
        assert row.evaluate("each => getComputedStyle(each).display") == "table-row", path
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 673, path
        narrow = page.locator(f"{table} td").evaluate_all(
            "all => all.filter(each => each.textContent.trim().length > 3"
            " && each.clientWidth < 20).length"
        )
        assert narrow == 0, path
    page.goto(f"{site.server.url}/search/?q={query}")
    expect(page.locator(".printed code")).to_have_text(query)
    expect(page.locator(".printed")).to_be_visible()


def test_what_people_saw_and_did_loads_when_it_comes_into_view(
    site: Site, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = signed_in(new_page(), site, complaints)
    url = f"/sessions/{site.sample.session}/people/"
    loaded: list[str] = []
    page.on("request", lambda sent: loaded.append(sent.url) if url in sent.url else None)
    page.goto(f"{site.server.url}/sessions/{site.sample.session}/")
    assert loaded == []
    page.locator("#people").scroll_into_view_if_needed()
    table = page.get_by_role("table", name="What people saw and did, oldest first")
    expect(table).to_contain_text("saw the page of the session")
    assert len(loaded) == 1
    plain = signed_in(new_page(java_script_enabled=False), site, complaints)
    plain.goto(f"{site.server.url}/sessions/{site.sample.session}/")
    plain.locator("#people a").click()
    expect(plain.get_by_role("heading", level=1)).to_contain_text("What people saw and did")
    expect(plain.get_by_role("table").last).to_contain_text("saw the page of the session")
