"""What one request has to record: tool calls, traces with a conversation, and counts."""

from collections.abc import Iterable
from typing import NamedTuple

from traces.spans import Attributes, Span, SpanFault
from traces.tool_calls import ToolCall, read_conversation, read_tool_call


class NamedTrace(NamedTuple):
    """The conversation that a span gives to its whole trace; the earliest span's counts."""

    start_us: int
    conversation: str
    resource: Attributes


class CallOfConversation(NamedTuple):
    """A tool call with the conversation that its span names; empty if it names none."""

    call: ToolCall
    conversation: str


class SpanBatch:
    """The spans of one request, sorted by what becomes of them."""

    def __init__(self, spans: Iterable[Span | SpanFault]) -> None:
        self.calls: list[CallOfConversation] = []
        self.traces: dict[str, NamedTrace] = {}
        self.ignored = 0  # spans of anything but tool calls
        self.recorded = 0
        self.repeated = 0
        self.faults: list[str] = []  # one for each rejected span
        for span in spans:
            if isinstance(span, SpanFault):
                self.faults.append(str(span))
            else:
                self._sort_span(span)

    def _sort_span(self, span: Span) -> None:
        conversation = read_conversation(span)
        if conversation:
            name = NamedTrace(span.start_us, conversation, span.source.resource)
            earlier = self.traces.get(span.trace)
            if earlier is None or name[:2] < earlier[:2]:
                self.traces[span.trace] = name
        call = read_tool_call(span)
        if call is None:
            self.ignored += 1
        else:
            self.calls.append(CallOfConversation(call, conversation))
