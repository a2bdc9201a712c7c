"""Pages as of a past moment rebuild what spans made."""

from typing import Any

from db.clock import now_us
from investigation.history.moment import JournalCut
from journal.models import Entry
from ledger.models import Effect
from tests.approvals.conftest import inbox as inbox
from tests.approvals.conftest import quiet as quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_asof_replay import differences, live, made_again
from tests.traces.conftest import Exporter
from tests.traces.otlp_requests import to_protobuf, tool_span

UNPLACED = {"gen_ai.conversation.id": None}


def test_every_moment_between_exports_is_rebuilt_as_it_was(
    quiet: InboxScenario, application: Any
) -> None:
    exporter = Exporter(quiet.agent.token, application)
    exports: list[Any] = [
        [tool_span(1)],
        [tool_span(2, status=2), tool_span(3, attributes=UNPLACED)],
        [tool_span(4, attributes={"gen_ai.operation.name": "chat", "gen_ai.tool.name": None})],
        "policy",
        [tool_span(5, trace="cd" * 16, attributes={"gen_ai.conversation.id": "conv-2"})],
        [tool_span(6, attributes={"gen_ai.tool.call.result": None})],
        [tool_span(1), tool_span(5, trace="cd" * 16, attributes={"gen_ai.tool.call.result": "x"})],
    ]
    moments = []
    for spans in exports:
        if spans == "policy":
            quiet.rules()
        else:
            assert exporter.send(to_protobuf(spans)).status_code == 200
        cut = JournalCut(Entry.objects.latest("position").position, now_us())
        moments.append((cut, live(cut.at_us)))
    for cut, shown in moments:
        assert differences(made_again(quiet.project.id, cut), shown) == {}
    bases = set(Effect.objects.values_list("permission_basis", flat=True))
    assert {"import", "observe", "policy"} <= bases
