"""Tools, rules, agents and people of the sample project."""

from typing import Final, NamedTuple

AGENTS: Final = {
    "code-fixer": "Fixes small bugs in the web shop, and opens pull requests.",
    "deploy-bot": "Deploys what is merged, watches it, and rolls back.",
    "support-assistant": "Answers customers' tickets, and refunds small amounts.",
    "data-steward": "Keeps reports and customer data in order.",
    "ops-watch": "Looks after servers, certificates and backups.",
}
PEOPLE: Final = {
    "sample-rita": "reviewer",
    "sample-sam": "reviewer",
    "sample-olga": "operator",
}
REPOSITORIES: Final = ("web-shop", "payments-api", "infrastructure")
TOOLS: Final = """tools:
  file.read: {class: read_only, description: Reads a file of the working copy.}
  file.edit: {class: idempotent, reversibility: reversible, description: Writes a file.}
  test.run: {class: read_only, description: Runs the tests.}
  git.commit: {class: transactional, reversibility: reversible, description: Records a commit.}
  git.push:
    {class: probeable, reversibility: compensable, deadline_s: 120, description: Moves a branch.}
  issue.comment: {class: idempotency_key, reversibility: compensable, key_window_s: 86400}
  deploy.run:
    class: compensable
    reversibility: compensable
    telling: [version, share]
    deadline_s: 900
    description: Deploys a version to an environment.
  ticket.reply:
    {class: idempotency_key, reversibility: irreversible, key_window_s: 86400, telling: [subject]}
  payment.refund:
    class: opaque
    reversibility: irreversible
    telling: [amount, order]
    description: Pays money back to a customer.
  mail.send:
    class: opaque
    reversibility: irreversible
    telling: [subject, recipients]
    raises: [{path: recipients, gt: 100, risk: critical}]
    description: Sends e-mail to customers.
  db.query: {class: read_only, description: Reads from the reporting database.}
  db.delete: {class: opaque, reversibility: irreversible, telling: [table, rows]}
  server.restart: {class: idempotent, reversibility: reversible, deadline_s: 300}
  backup.verify: {class: read_only, description: Restores a backup beside the original.}
  certificate.renew: {class: idempotent, reversibility: compensable}
"""
RULES: Final = """name: sample
hours: {zone: UTC, days: [mon, tue, wed, thu, fri], from: "08:00", to: "18:00"}
rules:
  - id: push-to-main
    title: A push to the main branch
    match: {tools: [git.push], refs: [main]}
    outcome: require
    require: {rationale: {on: always, minimum_characters: 10}, decide_within: 8h}
  - id: deploy-to-production
    title: A deployment to production
    match: {tools: [deploy.run], environments: [production]}
    outcome: require
    require: {decide_within: 8h}
  - id: large-refund
    title: A refund of more than 100
    match: {tools: [payment.refund], arguments: [{path: amount, gt: 100}]}
    outcome: require
    require: {decide_within: 1d}
  - id: mail-to-many
    title: A mail to more than ten customers
    match: {tools: [mail.send], arguments: [{path: recipients, gt: 10}]}
    outcome: require
    require: {decide_within: 1d}
  - id: delete-rows
    title: Deleting customer data
    match: {tools: [db.delete]}
    outcome: require
    require: {decide_within: 8h}
  - id: rest
    title: Everything else
    match: {}
    outcome: allow
"""


class Step(NamedTuple):
    """A routine call: tool, arguments, target, why. `{n}` in texts is a number of the day."""

    tool: str
    arguments: dict[str, object]
    target: dict[str, str]
    why: str


_SHOP: Final = {"repository": "web-shop"}
_STAGING: Final = {"repository": "web-shop", "environment": "staging"}
# Per agent: title of the session, and its calls.
ROUTINES: Final[dict[str, tuple[tuple[str, tuple[Step, ...]], ...]]] = {
    "code-fixer": (
        (
            "SHOP-{n}: prices of bundles are rounded twice",
            (
                Step("file.read", {"path": "shop/pricing.py"}, _SHOP, "Where is it rounded?"),
                Step("file.edit", {"path": "shop/pricing.py"}, _SHOP, "Round once, at the end."),
                Step("test.run", {"suite": "pricing"}, _SHOP, "Does it hold for all currencies?"),
                Step("git.commit", {"message": "SHOP-{n}: round once"}, _SHOP, "One change."),
                Step(
                    "git.push",
                    {"branch": "fix/shop-{n}"},
                    {"repository": "web-shop", "ref": "fix/shop-{n}"},
                    "So that others can read it.",
                ),
            ),
        ),
        (
            "SHOP-{n}: the basket forgets a voucher",
            (
                Step("file.read", {"path": "shop/basket.py"}, _SHOP, "Where is it dropped?"),
                Step("file.edit", {"path": "shop/basket.py"}, _SHOP, "Keep it over the sign-in."),
                Step("test.run", {"suite": "basket"}, _SHOP, "Reproduce and prove."),
                Step("issue.comment", {"issue": "SHOP-{n}"}, _SHOP, "Tell who reported it."),
            ),
        ),
    ),
    "deploy-bot": (
        (
            "Stage build {n} of the web shop",
            (
                Step("test.run", {"suite": "smoke", "build": "{n}"}, _STAGING, "Is it whole?"),
                Step("deploy.run", {"version": "3.{n}", "share": 100}, _STAGING, "Merged today."),
                Step("test.run", {"suite": "checkout"}, _STAGING, "Can people pay?"),
            ),
        ),
    ),
    "support-assistant": (
        (
            "Tickets of the morning, batch {n}",
            (
                Step("ticket.reply", {"subject": "Where is my order 41{n}?"}, {}, "Parcel found."),
                Step("payment.refund", {"order": "41{n}", "amount": 19}, {}, "Arrived broken."),
                Step("ticket.reply", {"subject": "Return of order 41{n}"}, {}, "Label attached."),
            ),
        ),
    ),
    "data-steward": (
        (
            "Daily report {n}",
            (
                Step("db.query", {"report": "revenue by country"}, {}, "For the daily report."),
                Step("db.query", {"report": "returns"}, {}, "For the daily report."),
                Step("mail.send", {"subject": "Report {n}", "recipients": 4}, {}, "To finance."),
            ),
        ),
    ),
    "ops-watch": (
        (
            "Night watch {n}",
            (
                Step("backup.verify", {"backup": "orders-{n}"}, {}, "Every night."),
                Step(
                    "server.restart",
                    {"host": "worker-3"},
                    {"resource": "worker-3"},
                    "Its memory grows.",
                ),
                Step(
                    "certificate.renew",
                    {"name": "shop.example"},
                    {"resource": "shop.example"},
                    "It ends in 20 days.",
                ),
            ),
        ),
    ),
}
