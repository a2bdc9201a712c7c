"""The words of docs/evaluation.md around the figures."""

from typing import Final

OPENING: Final = """\
# What survives a crash

*This page is generated: `make evaluate ARGS=--publish` measures and writes it, and the same figures as
[JSON](evaluation.json).*

The paper asks that whoever claims recovery be tested by workloads of which each would show a false claim. Two of
its five are run here: crashes around external effects (W1), and scheduler, worker and approver at once (W2). The
baselines that should fail are run by the same rig, with the same agent: were they not to fail, the rig would prove
nothing.

**How it is decided.** A remote service of our own, the *oracle*, runs in a process of its own and writes one
append-only log. Agent and server see of it only what agents see of any service: execute, look up, cancel. At each
request an adversary chooses: commit · drop · late (in flight until somebody looked or time passed) · commit and
lose the answer · reject. The agent may die at every tick: before and after each command's answer, before and after
each request, at every step of its recovery; then a new process begins that knows nothing but the book. For n = 1,
2, … the death is moved on until a run ends without reaching tick n, for every choice of the adversary: nothing is
sampled. Every run has a line that replays it.

Five counters are read from the oracle's log alone. *Duplicates*: done twice, though done once was asked. *Lost*:
said to be done, and it is not. *Wrong verdicts*: told to act on what stands or may still land, or to pass over what
does not stand. *False safe*: "can resume" was said, and following it led there, or to a person at once. *Unlabelled
ambiguities*: one and the same record stood for two different fates, and was acted on all the same (Proposition 1).
"""

MEANING: Final = """\
## What the figures say

The session file fails as the paper predicts, whichever way it is read after a crash: replaying it does things
twice, skipping loses them, and asking leaves most runs to a person; and it says "safe" wherever it does not ask.
What Gatebook leaves to people are effects of opaque and undeclared tools, those that only the remote's own lost
word could undo, and a guarded write whose guard said no to a repetition. It does not remove the ambiguity: it
confines and labels it.
"""

LIMITS: Final = """\
## Limits

- The remote is a fake that keeps its class's promise: a keyed one knows our key inside its window, a late request
  lands within `request_lifetime_s`. A remote that breaks what `tools.yaml` says of it breaks the verdicts with it.
- One effect in each run of W1. The adversary chooses what becomes of the first request of a run, in T2 of the first
  two; looks are answered truly. What Gatebook does with looks that fail, or find several, `tests/recovery/` tries.
- A worker that dispatched, slept longer than `request_lifetime_s` and acts then is stopped by its own rule, not by
  the server: the zombie of W2 keeps that rule, as the client does.
- The clock is injected: nobody sleeps. The server under trial reads a clock that the rig moves on; leases go by the
  database's own clock, and their times are moved back by SQL in the rig's own database.
- The server dies at four places of every command: before the transaction, after its last statement, after COMMIT
  and half-way through the answer; torn down in process with every kind of tool, by SIGKILL with three of them. No
  power fails: what the disk keeps of a COMMIT is the database's promise.
- Interleavings of begin, update and commit are made on Gatebook's own table, by statements of the rig that compare
  the version as the product's do.
- What is left of the five workloads (interrupts over migrations, audit reconstruction, growth) is not measured
  here.
"""

FAILURE_MODES: Final = """\
## The seven failure modes of a session file

Table 3 of the paper, and for each the test that shows how Gatebook behaves instead.

| failure mode | here | shown by |
|---|---|---|
| Full-object rewrites | a change writes its own rows | `test_it_costs_the_same_after_many_effects` in \
[tests/recovery/test_resume.py](../tests/recovery/test_resume.py) |
| Append-only growth | hot rows and history are apart | `test_queries_are_few_and_do_not_grow_with_the_book` in \
[tests/pages/test_inquiry_costs.py](../tests/pages/test_inquiry_costs.py) |
| Replay ambiguity | one verdict for every state | `test_a_death_at_any_tick_leaves_what_happened_known` in \
[tests/evaluation/test_t0.py](../tests/evaluation/test_t0.py) |
| Coarse concurrency control | rows with versions | `test_no_interleaving_of_three_writers_loses_an_update` in \
[tests/evaluation/test_t0.py](../tests/evaluation/test_t0.py) |
| Schema drift | the law is in the schema | `test_editing_a_table_of_the_fold_asks_for_a_migration` in \
[tests/ledger/test_states_are_the_schema.py](../tests/ledger/test_states_are_the_schema.py) |
| Poor queryability | every field has its index | `test_what_people_ask_most_is_served_by_an_index` in \
[tests/pages/test_inquiry_search.py](../tests/pages/test_inquiry_search.py) |
| Weak audit trail | a journal that nothing changes | `test_no_statement_changes_what_was_written` in \
[tests/journal/test_append_only.py](../tests/journal/test_append_only.py) |
"""
