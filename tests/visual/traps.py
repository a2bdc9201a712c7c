"""Requests that a tired reviewer would approve, and what checks report of them, for pictures.

`python -m tests.visual.traps FOLDER [NAME…]` takes pictures of their pages. The results of the
checks are written by hand, so that every level and place has an example; `--real` as a name shows
what the checks report.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

from approvals.checks.check_results import CheckResult, Compared

LOOKALIKE = "n\u043erthwind-audit.com"
KNOWN = "northwind-audit.com"
MAIL = {
    "to": f"billing@{LOOKALIKE}",
    "attachment": "exports/2026/11/full/customers-2026-11.csv",
    "rows": 18412,
    "dry_run": False,
    "subject": "November sample",
}
MAIL_CLAIM = (
    "Sends the same auditors as every month a sample of 200 rows. Dry run, no personal data."
)
PUSH = {
    "remote": "origin",
    "refspec": "+8f2c91d4:refs/heads/main",
    "tests": "passed on docs/rounding",
    "patch": """--- a/docs/rounding.md
+++ b/docs/rounding.md
@@ -1,2 +1,2 @@
 Rounding
-half up
+half to even
--- a/deploy/production/values.yaml
+++ b/deploy/production/values.yaml
@@ -14,3 +14,3 @@ api:
   image: registry.acme.example/payments-api
-  replicas: 12
+  replicas: 2
   database:
""",
}
PUSH_CLAIM = "A normal push, docs only. Tests are green."


def phrase_of(claim: str, words: str) -> tuple[int, int]:
    """Return the place of words in a claim."""
    start = claim.index(words)
    return start, start + len(words)


def contradict(claim: str, words: str, fact: str, concerns: str, **more: Any) -> CheckResult:
    """Return a contradiction of words of a claim."""
    return CheckResult(
        "claim_against_arguments",
        "danger",
        more.pop("short", f"not {words}"[:28]),
        f"Claim “{words}”: {fact}",
        concerns=concerns,
        phrase=phrase_of(claim, words),
        **more,
    )


MAIL_RESULTS = (
    CheckResult(
        "lookalike_letter",
        "danger",
        "lookalike letter",
        "Lookalike domain: 1 letter is Cyrillic.",
        "It looks like a domain you have used, but is another one.",
        "arguments.to",
        (
            Compared(
                "Requested", LOOKALIKE, "First use ever. Letter 2 is Cyrillic о, U+043E", (1,)
            ),
            Compared("Known", KNOWN, "214 mails since 2 March. Letter 2 is Latin o, U+006F", (1,)),
        ),
    ),
    CheckResult(
        "denied_before",
        "danger",
        "denied before",
        "Denied before:",
        "mira, yesterday 16:20: “Customer exports go through the vault, never by mail.” Same file,",
        "request",
        gate="g_12",
    ),
    contradict(MAIL_CLAIM, "the same auditors", "their domain has a Latin o.", "arguments.to"),
    contradict(MAIL_CLAIM, "200 rows", "the file has 18,412.", "arguments.rows"),
    contradict(MAIL_CLAIM, "Dry run", "the mail is sent.", "arguments.dry_run"),
    contradict(
        MAIL_CLAIM, "no personal data", "the file name says customers.", "arguments.attachment"
    ),
    CheckResult(
        "missing_evidence",
        "warning",
        "no ticket",
        "Ticket",
        "the rule requires OPS-…",
        "evidence",
    ),
    CheckResult("missing_evidence", "notice", "no retention", "Retention.", "", "evidence"),
    CheckResult(
        "first_use",
        "notice",
        "first use of domain",
        "First mail to this domain by anyone.",
        "",
        "arguments.to",
    ),
)
PUSH_RESULTS = (
    CheckResult(
        "denied_before",
        "danger",
        "denied 40 min ago",
        "Denied 40 min ago: the same commit.",
        "mira, 21:20: “Fewer replicas need the capacity sheet first. Split this from the docs.” "
        "Commit and branch unchanged since.",
        "request",
        gate="g_12",
    ),
    contradict(
        PUSH_CLAIM,
        "docs only",
        "1 of 2 files is not docs.",
        "changes",
        short="not docs only",
        sentence="Production values: deploy/production/values.yaml.",
    ),
    CheckResult(
        "missing_evidence",
        "danger",
        "may remove commits",
        "May remove commits: not reported.",
        "+ forces the push; the agent sent no list of removed commits. Assume it removes some.",
        "arguments.refspec",
    ),
    contradict(PUSH_CLAIM, "A normal push", "the + forces it.", "arguments.refspec"),
)
NOTICE_RESULTS = (
    CheckResult(
        "first_use",
        "notice",
        "first use of cluster",
        "First use of cluster staging-eu-3 in this project.",
        "",
        "arguments.cluster",
        (Compared("Nearest", "staging-eu-2", "41 calls since March"),),
    ),
    CheckResult(
        "unusual_hour", "notice", "unusual hour", "First request of this agent on a Sunday.", ""
    ),
)
ONE_RESULT = (
    CheckResult(
        "environment_against_arguments",
        "warning",
        "staging, but prod cluster",
        "Environment “staging”: the cluster is production.",
        "The word of the environment and the cluster disagree.",
        "target.environment",
        (
            Compared("Said", "staging"),
            Compared("Found", "prod-eu-1", "arguments.cluster"),
        ),
    ),
)


@dataclass
class HandWritten:
    """Results by the effect key of their request; stands in for the checks."""

    results: dict[str, tuple[CheckResult, ...]]

    def check_requests(
        self, project: UUID, requests: Sequence[Any]
    ) -> dict[UUID, tuple[CheckResult, ...]]:
        from ledger.models import Effect

        keys = dict(
            Effect.objects.filter(id__in=[request.effect for request in requests]).values_list(
                "id", "effect_key"
            )
        )
        return {
            request.gate: tuple(
                replace(result, gate="") if result.gate == str(request.opened_position) else result
                for result in self.results[keys[request.effect]]
            )
            for request in requests
            if keys[request.effect] in self.results
        }


@contextmanager
def hand_written_checks() -> Iterator[None]:
    """Let the checks report the results of this module."""
    from approvals.checks import run_checks

    reported = HandWritten(
        {
            "trap-mail": MAIL_RESULTS,
            "trap-push": PUSH_RESULTS,
            "trap-notice": NOTICE_RESULTS,
            "trap-one": ONE_RESULT,
        }
    )
    with mock.patch.object(run_checks, "check_requests", reported.check_requests):
        yield


def plan_traps(sample: Any) -> list[Any]:
    """Plan the requests in the session of the sample; return the addresses of their pages."""
    from tests.visual.installation import url_of
    from tests.visual.sample import PageAddress

    opened = sample.agent.open_session("night-3", title="Nightly jobs", on_behalf_of="alice")
    sample.sessions["night"] = opened["id"]
    for number in range(4):
        arguments = {"issue": number, "to": f"billing@{KNOWN}", "cluster": "staging-eu-2"}
        sample.run("night", f"known-{number}", "issue.comment", arguments)
    sample.plan(
        "night",
        "trap-mail",
        "mail.send",
        MAIL,
        target={"environment": "production"},
        why=MAIL_CLAIM,
    )
    target = {"repository": "acme/payments-api", "ref": "refs/heads/main"}
    sample.plan("night", "trap-push", "git.push", PUSH, target=target, why=PUSH_CLAIM)
    sample.plan(
        "night",
        "trap-notice",
        "volume.delete",
        {"cluster": "staging-eu-3", "volume": "reports-cache-0"},
        target={"environment": "staging"},
        why="Frees 40 GB. Nobody has read it since May.",
    )
    sample.plan(
        "night",
        "trap-one",
        "volume.delete",
        {"cluster": "prod-eu-1", "volume": "ledger-main-0"},
        target={"environment": "staging"},
        why="Frees 40 GB in staging.",
    )
    names = ("trap-mail", "trap-push", "trap-notice", "trap-one")
    pages = [
        PageAddress(name, "sam", url_of("gate", sample.gate_of(name)))
        for name in (*names, "push", "mail", "hidden")
    ]
    inbox = url_of("inbox")
    return [
        *pages,
        PageAddress("inbox", "sam", f"{inbox}?open={sample.gate_of('trap-mail')}"),
        PageAddress("inbox-push", "sam", f"{inbox}?open={sample.gate_of('trap-push')}"),
        PageAddress("inbox-calm", "sam", f"{inbox}?open={sample.gate_of('mail')}"),
    ]


def main(folder: Path, chosen: list[str]) -> None:
    """Store the first screen and the whole of each page, at two widths, light and dark."""
    from tests.visual.pictures import WIDTHS, open_browser, open_page, open_sample, take_picture

    folder.mkdir(parents=True, exist_ok=True)
    checks = nullcontext() if "--real" in chosen else hand_written_checks()
    chosen = [name for name in chosen if name != "--real"]
    with open_sample() as (sample, _), checks, open_browser() as browser:
        for address in plan_traps(sample):
            if chosen and address.name not in chosen:
                continue
            client = sample.people[address.person].client
            for width in WIDTHS:
                with open_page(browser, client, address, width, sample.clock.now()) as page:
                    for scheme in ("light", "dark"):
                        page.emulate_media(color_scheme=scheme)
                        page.clock.run_for(50)
                        stem = f"{address.name}-{width}-{scheme}"
                        page.screenshot(path=folder / f"{stem}.png")
                        take_picture(page, folder / f"{stem}-full.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
