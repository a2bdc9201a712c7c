"""Texts of docs/explanation/evaluation.md around the figures."""

from typing import Final

OPENING: Final = """\
# What survives a crash

*This page is generated: `make evaluate ARGS=--publish` measures and writes it, and the same figures
as [JSON](../evaluation.json).*

The paper *Interchange Is Not Storage: Persistence Roles and Runtime Design for Durable AI Coding
Agents* (Chaitanya Mishra, March 2026) proposes five workloads that show whether an agent system
recovers as it claims. This page covers two of them: crashes around external effects (W1), and
scheduler, worker and approver at once (W2). The same harness and the same agent also run
*baselines*: agents that store their state in a session file. The baselines should fail. If they did
not fail, the harness would prove nothing.

## Method

A fake remote service, the *oracle*, runs in its own process and writes one append-only log. The
agent and the server can only execute, look up and cancel there. At each request an *adversary*
chooses what happens:

- commit: the service does the work and answers;
- drop: the request never arrives;
- late: the request is in flight until a probe arrives or time passes;
- lose: the service does the work, and its response is lost;
- reject: the service refuses.

The agent can die before and after the response to each command, before and after each request, and
at every step of its recovery. Then a new process begins that knows only what was stored. The harness
makes one run for every step at which the agent can die, and for every choice of the adversary. Rows
marked *sampled* run only a part. For each kind of fault that it finds, the harness prints a line that
repeats such a run (`--replay`).

The baselines save the session file by renaming a new file; *in place* overwrites the file instead.
*Saved after* saves after each effect. The others save the intent before the request. They are named
after what a new process does with an intent that has no result: *replay*, *skip*, or *ask* a person.

A *mutant* is a fault that the harness puts into Gatebook, the agent or the session file on purpose.
The harness must notice each mutant.

## Counters

The harness reads five counters from the oracle's log:

| counter | counts |
|---|---|
| *Duplicates* | effects done twice that were requested once |
| *Lost* | effects reported as done that were not done |
| *Wrong verdicts* | acting on an effect that happened or may still happen; skipping an effect that did not happen |
| *False safe* | the answer "safe to resume", if resuming then led to such an error, or at once to a person |
| *Unlabelled ambiguities* | acting although the record fits two outcomes, without saying so |
"""

MEANING: Final = """\
## What the figures say

The session file fails as the paper predicts, whatever the new process does with it. Replaying
duplicates effects, skipping loses effects, and asking leaves most runs to a person. An agent with a
session file reports "safe" wherever it does not ask.

With Gatebook, people still decide effects of opaque and undeclared tools. They also decide effects
that can be undone only with an id that was in the lost response, and a conditional write whose
precondition fails when the write is repeated. Gatebook limits and labels such an ambiguity; it
cannot remove it.
"""

LIMITS: Final = """\
## Limits

- The remote service is a fake that behaves as its class declares: a remote with keys recognizes a
  key within its window, and a late request arrives within `request_lifetime_s`. If a real service
  does not behave as `tools.yaml` declares, the verdicts are wrong too.
- Each run of W1 has one effect. The adversary chooses the result of the first request of a run, and
  of the first two in rows named *two chosen requests*. The oracle answers probes correctly;
  `tests/recovery/` covers probes that fail or find several effects.
- If a worker dispatches, sleeps longer than `request_lifetime_s` and then acts, the server cannot
  stop it. The worker must check the time itself. The sleeping worker of W2 does so, as the client
  does.
- No process sleeps, because the harness sets the clock that the server reads. Leases use the
  database's own clock, so the harness moves the times of leases back by SQL.
- The server dies at four points of every command: before the transaction, after its last statement,
  after COMMIT and in the middle of the response. With every kind of tool, an exception ends the
  command; with three kinds, SIGKILL ends the server. The power never fails, so the evaluation does
  not test whether a COMMIT is durable on disk.
- Interleavings of begin, update and commit run on Gatebook's own table. The harness sends the
  statements itself, and they compare the version as Gatebook's statements do.
- This page does not measure the other three workloads: interrupts over migrations, audit
  reconstruction, and growth.
"""

FAILURE_MODES: Final = """\
## The seven failure modes of a session file

Table 3 of the paper lists these failure modes. For each, a test shows how Gatebook behaves instead.

| failure mode | Gatebook | test |
|---|---|---|
| Full-object rewrites | a change writes its own rows | \
`test_it_costs_the_same_after_many_effects` in \
[tests/recovery/test_resume.py](../../tests/recovery/test_resume.py) |
| Append-only growth | hot rows and history are separate | \
`test_queries_are_few_and_do_not_grow_with_the_journal` in \
[tests/pages/test_inquiry_costs.py](../../tests/pages/test_inquiry_costs.py) |
| Replay ambiguity | one verdict for every state | \
`test_a_death_at_any_tick_leaves_what_happened_known` in \
[tests/evaluation/test_t0.py](../../tests/evaluation/test_t0.py) |
| Coarse concurrency control | rows with versions | \
`test_no_interleaving_of_three_writers_loses_an_update` in \
[tests/evaluation/test_t0.py](../../tests/evaluation/test_t0.py) |
| Schema drift | constraints and triggers are in the schema | \
`test_editing_a_table_of_the_fold_asks_for_a_migration` in \
[tests/ledger/test_states_are_the_schema.py](../../tests/ledger/test_states_are_the_schema.py) |
| Poor queryability | every field has an index | \
`test_what_people_ask_most_is_served_by_an_index` in \
[tests/pages/test_inquiry_search.py](../../tests/pages/test_inquiry_search.py) |
| Weak audit trail | a journal that cannot be changed | \
`test_no_statement_changes_what_was_written` in \
[tests/journal/test_append_only.py](../../tests/journal/test_append_only.py) |
"""
