"""Texts of docs/explanation/evaluation.md around the figures."""

from typing import Final

OPENING: Final = """\
# What survives a crash

*This page is generated: `make evaluate ARGS=--publish` measures and writes it, and the same figures
as [JSON](../evaluation.json).*

The paper requires that every claim of recovery is tested with workloads that would show a false
claim. This page covers two of its five workloads: crashes around external effects (W1), and
scheduler, worker and approver at once (W2). The same harness and the same agent also run the
baselines that should fail. If they did not fail, the harness would prove nothing.

**Method.** A fake remote service, the *oracle*, runs in its own process and writes one append-only
log. Agent and server see of it only what agents see of any service: execute, look up, cancel. At
each request an adversary chooses one of: commit · drop · late (in flight until a probe arrives or
time passes) · commit and lose the response · reject.

The agent can die at every tick: before and after the response to each command, before and after
each request, at every step of its recovery. Then a new process begins that knows nothing but the
journal. For n = 1, 2, … the agent dies at tick n, until a run ends without reaching tick n, for
every choice of the adversary. Only rows that say so are sampled. Every run has a line that replays
it.

Five counters are read from the oracle's log alone:

| counter | counts |
|---|---|
| *Duplicates* | effects done twice that were requested once |
| *Lost* | effects reported as done that were not done |
| *Wrong verdicts* | acting on an effect that happened or still may; skipping one that did not |
| *False safe* | "can resume" where following it led to such an error, or to a person at once |
| *Unlabelled ambiguities* | acting on one record of two possible outcomes (Proposition 1) |
"""

MEANING: Final = """\
## What the figures say

The session file fails as the paper predicts, whichever way it is read after a crash. Replaying it
duplicates effects, skipping loses them, and asking leaves most runs to a person. It reports "safe"
wherever it does not ask.

With Gatebook, people still decide effects of opaque and undeclared tools, effects that only the
remote's own lost response could undo, and a conditional write whose precondition failed on repetition.
Gatebook limits and labels the ambiguity; it cannot remove it.
"""

LIMITS: Final = """\
## Limits

- The remote is a fake that keeps the promise of its class: a keyed one knows our key inside its
  window, and a late request arrives within `request_lifetime_s`. If a remote breaks its declaration
  in `tools.yaml`, the verdicts are wrong too.
- Each run of W1 has one effect. The adversary chooses the result of the first request of a run, in
  T2 of the first two; probes are answered correctly. `tests/recovery/` covers probes that fail or
  find several.
- A worker that dispatched, slept longer than `request_lifetime_s` and then acts is stopped by its
  own rule, not by the server. The sleeping worker of W2 keeps that rule, as the client does.
- The clock is injected, so no process sleeps. The server under test reads a clock that the harness
  moves. Leases use the database's own clock, and SQL in the harness's own database moves their
  times back.
- The server dies at four points of every command: before the transaction, after its last statement,
  after COMMIT and in the middle of the response. It is stopped in process with every kind of tool,
  and by SIGKILL with three of them. The power never fails: the durability of a COMMIT on disk is
  the database's promise.
- Interleavings of begin, update and commit run on Gatebook's own table, by statements of the
  harness that compare the version as the product's do.
- The other three workloads (interrupts over migrations, audit reconstruction, growth) are not
  measured here.
"""

FAILURE_MODES: Final = """\
## The seven failure modes of a session file

Table 3 of the paper. For each failure mode a test shows how Gatebook behaves instead.

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
