"""Words and sentences for events of code hosts, their matches, and the rules that match."""

from typing import Final

# Filter of the list -> its words.
FILTERS: Final = {
    "": "All",
    "outside": "Acted outside Gatebook",
    "ambiguous": "Ambiguous",
    "matched": "With an effect",
    "open": "Waiting for an effect",
    "unmatched": "Without an effect",
    "not-understood": "Not understood",
}
# Status of an event -> (look of its state, words).
STATUS_LOOKS: Final = {
    "open": ("planned", "waiting for an effect"),
    "matched": ("acknowledged", "has its effect"),
    "ambiguous": ("unknown", "ambiguous"),
    "outside": ("failed", "acted outside Gatebook"),
    "unmatched": ("superseded", "no effect"),
}
MATCH_LOOKS: Final = {
    "confirmed": ("acknowledged", "confirmed"),
    "evidence": ("acknowledged", "matches, changes nothing"),
    "contradicts": ("failed", "contradicts the record"),
    "candidate": ("unknown", "possible"),
    "undispatched": ("planned", "planned the same, was never dispatched"),
    "withdrawn": ("superseded", "withdrawn by a person"),
}
RULE_TEXTS: Final = {
    "external_reference": "The effect's reported reference names what the event is about.",
    "comment_id": "The effect names this comment.",
    "comment_text": "The effect's comment has the same text at the same place.",
    "push_head_sha": "The effect pushes this commit to this repository.",
    "run_head_sha": "The effect pushed the commit that the run or check is about.",
    "push_ref_after": "The effect pushes to this ref of this repository.",
    "pull_request_number": "The effect does this to the pull request with this number.",
    "pull_request_head": "The effect opens a pull request of this branch.",
    "comment_number": "The effect comments here; its text is not in the plan.",
    "deployment_environment": "The effect deploys this to this environment.",
    "workflow_ref": "The effect starts this workflow on this ref.",
}
