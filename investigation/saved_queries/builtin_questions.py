"""Built-in audit questions: query templates with a few parameters, most of them with none.

The first five cover the queries that every audit needs: one click, or one name. The first 17 are
the audit (AUDIT_QUESTIONS); INCIDENT_QUESTIONS has what most incidents need.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from investigation.query import edit
from investigation.query.fields.types import MAX_VALUE_CHARACTERS
from investigation.query.parser import values
from investigation.query.parser.ast import QueryError, QueryValue


class ParameterError(ValueError):
    """A parameter is missing or not valid. `name` is the parameter; the text is the message."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a question.

    `kind` is text, words, number, length or moment; `like` is the field whose completion applies. A
    parameter with a `default` may be omitted; an `optional` one may be omitted together with its
    condition.
    """

    name: str
    label: str
    kind: str = "text"
    default: str = ""
    optional: bool = False
    like: str = ""  # As entity.field.
    help: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A built-in query. `template` contains `$name` for each parameter; `answers` describes it."""

    number: int
    name: str
    answers: str
    template: str
    parameters: tuple[Parameter, ...] = ()


_AGES: Final = "30m, 24h, 7d or 2026-11-20"


def _since_parameter(default: str) -> Parameter:
    return Parameter("since", "Since", "moment", default, help=_AGES)


AUDIT_QUESTIONS: Final = (
    Question(
        1,
        "Runs that failed in a tool",
        "Failed sessions in which an effect of this tool failed.",
        "session status:failed failing_tool:$tool since:$since",
        (Parameter("tool", "Tool", like="effect.tool"), _since_parameter("7d")),
    ),
    Question(
        2,
        "Waiting for approval",
        "Open requests: how long they have waited and whose approval they need.",
        "gate is:waiting",
    ),
    Question(
        3,
        "Retries by repository",
        "Repositories in which effects were tried more than once, and how often.",
        "effect attempts:>1 since:$since | group repository | count, max(attempts) | top 20",
        (_since_parameter("30d"),),
    ),
    Question(
        4,
        "Exemptions granted",
        "Exemptions by rule and by the person who granted them.",
        "exemption granted:$since | group rule,granter | count, sum(uses)",
        (_since_parameter("7d"),),
    ),
    Question(
        5,
        "Actions on production branches",
        "Effects that ran, or were reported as run, on refs that count as production.",
        # attempts:>0, because agents that only report need not send a dispatch time.
        "effect ref_class:production attempts:>0 since:$since",
        (_since_parameter("7d"),),
    ),
    Question(
        6,
        "Unknown outcome",
        "Effects whose outcome is unknown.",
        "effect is:unknown",
    ),
    Question(
        7,
        "Executed without permission",
        "Effects that ran although a rule or a reviewer did not permit them.",
        "effect permission:bypassed",
    ),
    Question(
        8,
        "Self-approval",
        "Requests approved by their own requester, or by the owner of the session or agent.",
        "gate is:self_approved",
    ),
    Question(
        9,
        "Rubber stamps",
        "People who approved within seconds of opening the page, and how often.",
        "gate ruling:approved ruled_in:<$within | group approver | count | top 20",
        (
            Parameter(
                "within", "Within", "length", "2s", help="a length of time, such as 500ms, 2s or 1m"
            ),
        ),
    ),
    Question(
        10,
        "Exemptions used after their end",
        "Exemptions under which an effect ran after they had ended or were revoked.",
        "exemption ( used:>@expires OR used:>@revoked )",
    ),
    Question(
        11,
        "Conflicts and reused keys",
        "Idempotency keys that were sent again with different content.",
        "event kind:integrity.conflict lane:system since:$since",
        (_since_parameter("7d"),),
    ),
    Question(
        12,
        "Missing or out-of-turn reports",
        "Gaps in a producer’s sequence, and reports by workers that had lost their lease.",
        "event kind:[integrity.gap,integrity.fenced] lane:system",
    ),
    Question(
        13,
        "Who approved this, and what they saw",
        "The requests of an effect: who voted what and when, and the digest of the page they saw.",
        "gate effect:$effect",
        (Parameter("effect", "Effect", like="effect.id", help="e_12 or its id"),),
    ),
    Question(
        14,
        "The chain of an external reference",
        "The effects of a pull request, commit or message id, with causes and compensations.",
        "effect chain:$reference",
        (
            Parameter(
                "reference", "Reference", like="effect.reference", help="its address or id, or e_12"
            ),
        ),
    ),
    Question(
        15,
        "Approved and executed differ",
        "Effects that were reported with other arguments than those that people approved.",
        # A different intent under a known key is always a violation, and violations are few.
        "effect is:violating any(gate: ruling:approved)"
        " (intent:!@approved_intent OR any(event: violation:key_reuse))",
    ),
    Question(
        16,
        "Sessions resumed often",
        "Sessions that were taken over by another worker more often than this.",
        "session resumes:>$times",
        (Parameter("times", "More often than", "number", "3"),),
    ),
    Question(
        17,
        "All entries of one person or agent",
        "All journal entries of one person or agent in a time range.",
        "event actor:$actor since:$since until:$until",
        (
            Parameter("actor", "Who", like="event.actor", help="a user name or an agent's name"),
            Parameter("since", "From", "moment", "24h", help=_AGES),
            Parameter("until", "To", "moment", optional=True, help=_AGES),
        ),
    ),
)
INCIDENT_QUESTIONS: Final = (
    Question(
        18,
        "Same action ran twice",
        "Calls that ran more than once, in one session or several (read-only tools excluded).",
        "effect duplicate:call state:[acknowledged,dispatched,unknown] tool:$tool $words"
        " since:$since | group tool,resource,like | count, distinct(session) | top 50",
        (
            Parameter("tool", "Tool", optional=True, like="effect.tool"),
            Parameter(
                "words",
                "Words",
                "words",
                optional=True,
                help="in its tool, target, arguments, result or reason",
            ),
            _since_parameter("7d"),
        ),
    ),
    Question(
        19,
        "Sessions that looped",
        "Sessions that repeated one call or were reported as looping, the most repetitions first.",
        "session ( repeats:>=$times OR is:looped ) since:$since"
        " | group key,title,agent | max(repeats) | top 50",
        (
            Parameter(
                "times", "At least", "number", "5", help="calls with the same tool and arguments"
            ),
            _since_parameter("7d"),
        ),
    ),
    Question(
        20,
        "Ran without being held",
        "Effects that a rule would have held, but that ran in observe mode or were imported.",
        "effect policy_outcome:[ask,deny] basis:[observe,import] attempts:>0 since:$since",
        (_since_parameter("7d"),),
    ),
    Question(
        21,
        "Acted on more than once",
        "Effects of the same tool on the same resource, with any arguments. Most are intended.",
        "effect duplicate:target state:[acknowledged,dispatched,unknown] tool:$tool $words"
        " since:$since | group tool,resource | count, distinct(intent), distinct(session) | top 50",
        (
            Parameter("tool", "Tool", optional=True, like="effect.tool"),
            Parameter(
                "words",
                "Words",
                "words",
                optional=True,
                help="in its tool, target, arguments, result or reason",
            ),
            _since_parameter("7d"),
        ),
    ),
)
ALL_QUESTIONS: Final = (*AUDIT_QUESTIONS, *INCIDENT_QUESTIONS)
# What people know at the start of an investigation, and the question that helps.
STARTING_POINTS: Final = (
    ("Something was done twice", 18),
    ("It ran without permission", 7),
    ("It ran without being held", 20),
    ("An exemption was used after its end", 10),
    ("A session looped", 19),
    ("A reviewer approved too fast", 9),
    ("The outcome is unknown", 6),
)
QUESTIONS_BY_NUMBER: Final = {question.number: question for question in ALL_QUESTIONS}


def fill_question(question: Question, values: Mapping[str, str]) -> str:
    """Return the text of the query with the values of its parameters. Raises ParameterError.

    Unknown names are ignored. Each value stays a single value of one condition, whatever its text.
    """
    texts = {
        parameter.name: _require_value(question, parameter, values.get(parameter.name, "").strip())
        for parameter in question.parameters
    }
    full_text_names = {
        parameter.name for parameter in question.parameters if parameter.kind == "words"
    }
    parts = []
    for part in question.template.split(" "):
        name = next((name for name in texts if part.endswith(f"${name}")), None)
        if name is None:
            parts.append(part)
        elif texts[name]:
            quote = edit.quote_value if name in full_text_names else edit.quote_if_needed
            parts.append(part.removesuffix(f"${name}") + quote(texts[name]))
    return " ".join(parts)


def _require_value(question: Question, parameter: Parameter, text: str) -> str:
    text = text or parameter.default
    if not text:
        if parameter.optional:
            return ""
        raise ParameterError(
            parameter.name, f"“{question.name}” needs a value for {parameter.label.lower()}."
        )
    if len(text) > MAX_VALUE_CHARACTERS or "\0" in text:
        raise ParameterError(
            parameter.name,
            f"{parameter.label} can have at most {MAX_VALUE_CHARACTERS} characters and no NUL.",
        )
    try:
        if parameter.kind == "moment":
            values.parse_time(QueryValue(text, 0), 0)
        elif parameter.kind == "length":
            values.parse_duration(QueryValue(text, 0))
        elif parameter.kind == "number":
            values.parse_number_value(QueryValue(text, 0))
    except QueryError as fault:
        raise ParameterError(parameter.name, fault.sentence) from None
    return text


__all__ = [
    "ALL_QUESTIONS",
    "AUDIT_QUESTIONS",
    "INCIDENT_QUESTIONS",
    "QUESTIONS_BY_NUMBER",
    "STARTING_POINTS",
    "Parameter",
    "ParameterError",
    "Question",
    "fill_question",
]
