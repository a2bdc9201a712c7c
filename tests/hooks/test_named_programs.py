"""Programs that speak the hooks of a coding agent under a name of their own."""

from journal.models import Entry
from tests.hooks.hook_client import HookClient, the_effect


def test_people_see_the_name_of_the_program(claude: HookClient) -> None:
    claude.before("git push origin HEAD", gatebook={"program": "mini-swe-agent"})
    assert claude.stored_session.labels["client"] == "mini-swe-agent"
    body = Entry.objects.get(position=the_effect().opened_position).body.text
    assert '"client":"mini-swe-agent"' in body.replace(": ", ":")


def test_without_a_name_people_see_the_client(claude: HookClient) -> None:
    claude.before("git push origin HEAD", gatebook={"program": 7})
    assert claude.stored_session.labels["client"] == "claude-code"
