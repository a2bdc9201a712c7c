"""Take pictures of a staged morning: `python -m tests.visual.morning FOLDER`.

People decide twenty requests from the pictures alone. FOLDER/answers.json names the traps.
"""

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.approvals.staged_morning import RULES, TOOLS, StagedRequest, stage_morning
from tests.visual.installation import (
    AgentClient,
    Clock,
    PersonClient,
    open_installation,
    run_command,
    run_command_with_file,
    url_of,
)
from tests.visual.pictures import WIDTHS, open_browser, open_page, take_picture
from tests.visual.sample import PageAddress

HISTORY_STEP_H = 40  # hours between two calls of the history


class Morning:
    """The installation of a staged morning, with an agent client for each agent."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.agents = clock, dict[str, AgentClient]()
        self.sessions: dict[tuple[str, str], str] = {}
        self.day = "past"
        admin = PersonClient(clock, "admin")
        admin.submit(url_of("people"), username="rita", role="reviewer")
        self.reviewer = PersonClient(clock, "rita")
        if 'value="accept"' in self.reviewer.load("/"):
            self.reviewer.submit("/", ("do", "accept"))
        run_command_with_file("load_tools", TOOLS)
        run_command_with_file("load_policies", RULES, "--activate", "observe")
        plans = stage_morning(self.plan, self.finish)
        self.gates = {key: str(plan["gate"]["id"]) for key, plan in plans.items()}

    def plan(self, request: StagedRequest, key: str) -> dict[str, Any]:
        """Plan a request of the history, or of the morning once that has begun."""
        if self.day == "past" and key == request.key:
            self.day = "morning"
            self.clock.advance(hours=20)
            run_command_with_file("load_policies", RULES, "--activate", "enforce")
        if request.agent not in self.agents:
            token = run_command("issue_token", "--agent", request.agent).strip()
            self.agents[request.agent] = AgentClient(self.clock, token)
        agent = self.agents[request.agent]
        name = (request.agent, self.day)
        if name not in self.sessions:
            opened = agent.open_session("-".join(name), title=f"Work of {request.agent}")
            self.sessions[name] = opened["id"]
        fields: dict[str, Any] = {"why": request.why}
        if request.target:
            fields["target"] = request.target
        return agent.plan(self.sessions[name], key, request.tool, request.arguments, **fields)

    def finish(self, plan: dict[str, Any]) -> None:
        """Run a planned effect of the history."""
        agent = next(iter(self.agents.values()))
        for client in self.agents.values():
            if self.sessions.get((self._name_of(client), "past")) == plan["session"]:
                agent = client
        agent.dispatch(plan)
        agent.acknowledge(plan)
        self.clock.advance(hours=HISTORY_STEP_H)

    def _name_of(self, client: AgentClient) -> str:
        return next(name for name, other in self.agents.items() if other is client)


def main(folder: Path) -> None:
    """Store a picture of the list at each width, and one of each request."""
    folder.mkdir(parents=True, exist_ok=True)
    from tests.approvals.staged_morning import REQUESTS

    order = list(REQUESTS)
    random.Random(7).shuffle(order)
    answers = {}
    with (
        tempfile.TemporaryDirectory(prefix="gatebook-morning-") as installation,
        open_installation(Path(installation)) as clock,
        open_browser() as browser,
    ):
        morning = Morning(clock)
        run_command("update_name_index")
        morning.reviewer.sign_in()
        client = morning.reviewer.client
        for width in WIDTHS:
            address = PageAddress("inbox", "rita", url_of("inbox"))
            with open_page(browser, client, address, width, clock.now()) as page:
                take_picture(page, folder / f"list-{width}.png")
        for number, request in enumerate(order, 1):
            width = 390 if number % 2 else 1280
            address = PageAddress(request.key, "rita", url_of("gate", morning.gates[request.key]))
            with open_page(browser, client, address, width, clock.now()) as page:
                take_picture(page, folder / f"{number:02d}.png")
            answers[f"{number:02d}"] = {"key": request.key, "trap": request.trap}
    (folder / "answers.json").write_text(json.dumps(answers, indent=1), encoding="utf-8")
    sys.stdout.write(f"{len(answers)} requests in {folder}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
