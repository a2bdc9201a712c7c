"""The environment variables that Gatebook reads, with defaults and meanings.

config/settings.py reads most of them. The documentation site shows them as the page Settings.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Variable:
    """A variable. `default` and `meaning` are Markdown with links relative to docs/reference/."""

    name: str
    default: str
    meaning: str


# By the heading of the page.
VARIABLES: Final[dict[str, tuple[Variable, ...]]] = {
    "Database, files and keys": (
        Variable(
            "DATABASE_URL",
            "SQLite in `var/`",
            (
                "`sqlite:///PATH` · `embedded:` or `embedded:DIR` · "
                "`postgres://user:password@host:port/name`"
            ),
        ),
        Variable(
            "DATABASE_OWNER_URL",
            "",
            (
                "PostgreSQL: the role that owns the tables. Only `manage.py setup`, `migrate`, "
                "`rebuild` and `vacuum_erased` use this role. `config.supervisor` removes the "
                "variable from its own environment and from the environment of its child "
                "processes"
            ),
        ),
        Variable(
            "GATEBOOK_VAR",
            "`var` next to the code",
            "folder of all files",
        ),
        Variable(
            "GATEBOOK_SECRET_KEY",
            "files in `var/keys/`",
            (
                "the [keys](../how-to/operating.md#keys-and-what-is-lost-with-each); every node "
                "needs the same two keys"
            ),
        ),
        Variable(
            "GATEBOOK_PEPPER",
            "files in `var/keys/`",
            (
                "the [keys](../how-to/operating.md#keys-and-what-is-lost-with-each); every node "
                "needs the same two keys"
            ),
        ),
        Variable(
            "GATEBOOK_SEAL_KEY",
            "file in `var/keys/`",
            "the key that signs tree heads; only the node of the job worker needs this key",
        ),
        Variable(
            "GATEBOOK_ANCHORS",
            "a file and a git repository in `var-anchors`, next to `var`",
            (
                "[where Gatebook publishes tree heads](../how-to/anchors.md), outside the "
                "database; with `none` Gatebook publishes none"
            ),
        ),
        Variable(
            "GATEBOOK_ERASURE_JOURNAL",
            "`erasures.jsonl` in `GATEBOOK_VAR`",
            (
                "the [erasure journal](../how-to/operating.md#the-erasure-journal), use another "
                "disk than that of the database"
            ),
        ),
        Variable(
            "GATEBOOK_ARTIFACT_BYTES",
            "67108864 (64 MiB)",
            (
                "maximum size of a stored artifact. Of a larger artifact Gatebook stores only "
                "the hash"
            ),
        ),
    ),
    "Addresses": (
        Variable(
            "PORT",
            "8000",
            "port to bind to",
        ),
        Variable(
            "GATEBOOK_HOST",
            "127.0.0.1",
            "address to bind to; `0.0.0.0` for all",
        ),
        Variable(
            "GATEBOOK_HOSTS",
            "",
            (
                "host names under which people reach Gatebook, separated by commas; `localhost` "
                "and `127.0.0.1` always work"
            ),
        ),
        Variable(
            "GATEBOOK_URL",
            "`http://127.0.0.1:PORT`",
            "address of Gatebook for people; links in notifications begin with this address",
        ),
        Variable(
            "GATEBOOK_HTTPS",
            "off",
            "`1` when a proxy serves Gatebook over https",
        ),
        Variable(
            "GATEBOOK_FORWARDED_FOR",
            "off",
            (
                "`1` when a proxy appends the client's address to `X-Forwarded-For` on every "
                "HTTP request. Gatebook then uses the last address in this header as the "
                "client's address"
            ),
        ),
        Variable(
            "GATEBOOK_PROXIES",
            "`127.0.0.1,::1`",
            (
                "addresses of proxies, separated by commas. Gatebook does not count a proxy's "
                "connections by address. Gatebook counts each HTTP request of a proxy under the "
                "last address in `X-Forwarded-For` that is not a proxy. Without this header, "
                "Gatebook counts the HTTP request under no address"
            ),
        ),
    ),
    "Limits of the web server, each per process": (
        Variable(
            "GATEBOOK_THREADS",
            "256",
            (
                "maximum number of HTTP requests at once. Long-polls may occupy all threads "
                "except 16, and use no database connection. Further long-polls return "
                "immediately with Retry-After"
            ),
        ),
        Variable(
            "GATEBOOK_CONNECTIONS",
            "4096",
            (
                "maximum number of open connections. The server raises the soft limit of open "
                "files. If the system allows fewer open files, the maximum is (`ulimit -n` − "
                "512) / 2, but at least a quarter of `ulimit -n`. At the maximum, the server "
                "closes the connection that has waited longest for its client, and accepts the "
                "new connection"
            ),
        ),
        Variable(
            "GATEBOOK_CONNECTIONS_PER_ADDRESS",
            "256",
            (
                "maximum number of open connections of one client address (on IPv6 of one /64 "
                "network). A further connection gets 429"
            ),
        ),
        Variable(
            "GATEBOOK_CLIENT_TIMEOUT_S",
            "10",
            (
                "maximum seconds for request line and headers. Also an interval: in each "
                "interval, a client must send or read `GATEBOOK_CLIENT_TIMEOUT_S` × "
                "`GATEBOOK_CLIENT_BYTES_PER_S` bytes. A client that sends more slowly gets 408. "
                "If a client reads a response more slowly, Gatebook closes the connection"
            ),
        ),
        Variable(
            "GATEBOOK_CLIENT_BYTES_PER_S",
            "8192",
            "lowest rate, in bytes per second, of an HTTP request's body and of a response",
        ),
        Variable(
            "GATEBOOK_SPOOL_BYTES",
            "1073741824 (1 GiB)",
            (
                "maximum bytes in `var/spool` (arriving bodies and slowly read responses). An "
                "HTTP request that exceeds this maximum gets 503"
            ),
        ),
    ),
    "Searches": (
        Variable(
            "GATEBOOK_SEARCH_TIMEOUT_S",
            "5",
            "maximum seconds of a search",
        ),
        Variable(
            "GATEBOOK_SEARCH_PLACES",
            "2; on PostgreSQL 1 if the server has two processors or fewer",
            (
                "maximum number of queries of the search language that run at once in the whole "
                "installation. Each query may use one processor of the database for up to "
                "`GATEBOOK_SEARCH_TIMEOUT_S`. Use a higher number if the database has a machine "
                "of its own"
            ),
        ),
    ),
    "Jobs, logs and notifications": (
        Variable(
            "CELERY_BROKER_URL",
            "`filesystem://`",
            (
                "`redis://host:6379/0` for Redis or Valkey, `amqp://host//` for RabbitMQ; `make "
                "install` installs the clients for all three"
            ),
        ),
        Variable(
            "GATEBOOK_LOG_LEVEL",
            "INFO",
            "DEBUG, INFO, WARNING or ERROR",
        ),
        Variable(
            "GATEBOOK_SMTP",
            "files in `var/mail`",
            (
                "mail server: `smtp://host:25`, `smtp+tls://user:password@host:587`, "
                "`smtps://user:password@host:465`"
            ),
        ),
        Variable(
            "GATEBOOK_MAIL_FROM",
            "`gatebook@localhost`",
            "sender of notifications",
        ),
        Variable(
            "GATEBOOK_WEBHOOK_HOSTS",
            "none",
            (
                "the only hosts that receive Slack messages and webhooks, separated by commas: "
                "`host`, or `host:port`"
            ),
        ),
        Variable(
            "GATEBOOK_WEBHOOK_LOOPBACK",
            "off",
            (
                "`1` also allows plain http, and listed names that resolve to this machine. Use "
                "`1` for trials only"
            ),
        ),
    ),
    "Agents, importers and tests": (
        Variable(
            "GATEBOOK_TOKEN",
            "",
            (
                "token for `import_trajectory --url` without `--token`; in an agent's process, "
                "the token of the [Python client](client.md)"
            ),
        ),
        Variable(
            "GATEBOOK_URL",
            "",
            "in an agent's process, the address that the [Python client](client.md) calls",
        ),
        Variable(
            "GATEBOOK_TEST_DATABASE",
            "embedded PostgreSQL",
            "the PostgreSQL server that `make test` uses",
        ),
        Variable(
            "GATEBOOK_TEST_AGENTS",
            "`.venv/agents`",
            "folder of the coding agents that `make test-agents` runs",
        ),
        Variable(
            "PYTHON",
            "`/usr/bin/python3`, otherwise the first Python on the `PATH` that is new enough",
            "the Python from which `make` builds `.venv`",
        ),
    ),
}
