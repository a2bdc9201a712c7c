"""The questions that ship: each a query with the few values that a form asks for, most of them none.

The first five are those that the paper says an audit must be able to ask; they need one click, or one name. With them
seventeen make the audit (QUESTIONS); what else is asked of most incidents comes after those (FURTHER).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from inquiry.query import editing, values
from inquiry.query.fields import LONGEST_VALUE
from inquiry.query.tree import Fault, One


class MissingError(ValueError):
    """A question was not given what it asks for; `name` is the parameter, the text a sentence about it."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that a question asks for. `kind`: text, words, number, length or moment; `like`: what completes it.

    One with a `default` may be left out, and means that; an `optional` one may be left out, with its whole condition.
    """

    name: str
    label: str
    kind: str = "text"
    default: str = ""
    optional: bool = False
    like: str = ""  # entity.field
    help: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """`template` is a query in which `$name` stands for a parameter; `answers` says what its answer tells."""

    number: int
    name: str
    answers: str
    template: str
    parameters: tuple[Parameter, ...] = ()

    @property
    def one_click(self) -> bool:
        """True when it can be asked as it is."""
        return all(one.default or one.optional for one in self.parameters)


_AGES: Final = "30m, 24h, 7d or 2026-11-20"


def _since(default: str) -> Parameter:
    return Parameter("since", "Since", "moment", default, help=_AGES)


QUESTIONS: Final = (
    Question(
        *(1, "Runs that failed in a tool"),
        "Sessions that ended as failed and in which an effect of this tool failed.",
        "session status:failed failing_tool:$tool since:$since",
        (Parameter("tool", "Tool", like="effect.tool"), _since("7d")),
    ),
    Question(
        *(2, "Waiting on people"),
        "What waits for people now, since when, and on whom.",
        "gate is:waiting",
    ),
    Question(
        *(3, "Retries by repository"),
        "In which repositories effects were tried more than once, and how often.",
        "effect attempts:>1 since:$since | group repository | count, max(attempts) | top 20",
        (_since("30d"),),
    ),
    Question(
        *(4, "Exemptions granted"),
        "Who granted exemptions from which rules.",
        "exemption granted:$since | group rule,granter | count, sum(uses)",
        (_since("7d"),),
    ),
    Question(
        *(5, "Actions on production branches"),
        "Effects that ran, or are said to have run, at refs which the repository's patterns call production.",
        "effect ref_class:production attempts:>0 since:$since",  # who only reports need not tell when it ran
        (_since("7d"),),
    ),
    Question(
        *(6, "Unknown outcome"),
        "Effects of which nobody can say whether they happened.",
        "effect is:unknown",
    ),
    Question(
        *(7, "Executed without leave"),
        "Effects that ran although a rule, or people, had not let them.",
        "effect leave:bypassed",
    ),
    Question(
        *(8, "Self-approval"),
        "Gates to which somebody said yes who had asked, or who owns the session or agent that asked.",
        "gate is:self_approved",
    ),
    Question(
        *(9, "Rubber stamps"),
        "Who said yes within moments of being shown the page, and how often.",
        "gate ruling:approved ruled_in:<$within | group approver | count | top 20",
        (Parameter("within", "Within", "length", "2s", help="a length of time as 500ms, 2s or 1m"),),
    ),
    Question(
        *(10, "Exemptions used after their end"),
        "Exemptions of which an effect ran after their time was over, or after they were revoked.",
        "exemption ( used:>@expires OR used:>@revoked )",
    ),
    Question(
        *(11, "Conflicts and reused keys"),
        "Keys that came a second time with other content.",
        "event kind:integrity.conflict lane:system since:$since",
        (_since("7d"),),
    ),
    Question(
        *(12, "Gaps and fenced writers"),
        "Entries that a producer left out, and writers that spoke after they had lost their lease.",
        "event kind:[integrity.gap,integrity.fenced] lane:system",
    ),
    Question(
        *(13, "Who approved this, and what they saw"),
        "Each gate of an effect, with who answered what, when, and the digest of the card that they were shown.",
        "gate effect:$effect",
        (Parameter("effect", "Effect", like="effect.id", help="e_12 or its id"),),
    ),
    Question(
        *(14, "The chain of an external reference"),
        "The effects behind a pull request, commit or message id, with their causes and what undid them.",
        "effect chain:$reference",
        (Parameter("reference", "Reference", like="effect.reference", help="its address or id, or e_12"),),
    ),
    Question(
        *(15, "Approved and run differ"),
        "Effects of which other arguments were reported than those that people gave leave for.",
        # Another intent under a known key is always a violation, and those are few.
        "effect is:violating any(gate: ruling:approved) (intent:!@approved_intent OR any(event: violation:key_reuse))",
    ),
    Question(
        *(16, "Sessions resumed often"),
        "Sessions that more workers took over than this.",
        "session resumes:>$times",
        (Parameter("times", "More often than", "number", "3"),),
    ),
    Question(
        *(17, "All that somebody did"),
        "Every entry of one person or agent, in a stretch of time.",
        "event actor:$actor since:$since until:$until",
        (
            Parameter("actor", "Who", like="event.actor", help="a user name or an agent's name"),
            Parameter("since", "From", "moment", "24h", help=_AGES),
            Parameter("until", "To", "moment", optional=True, help=_AGES),
        ),
    ),
)
FURTHER: Final = (
    Question(
        *(18, "What was done twice"),
        "Effects that ran with the tool and arguments of another (blanks, and what only names or explains the request,"
        " aside), in one session or in several: a row for each call, by the first effect that made it. What changes"
        " nothing, by its declaration, is left out.",
        "effect again:call state:[acknowledged,dispatched,unknown] tool:$tool $words since:$since"
        " | group tool,resource,like | count, distinct(session) | top 50",
        (
            Parameter("tool", "Tool", optional=True, like="effect.tool"),
            Parameter("words", "Words", "words", optional=True, help="of its tool, target, arguments or result"),
            _since("7d"),
        ),
    ),
    Question(
        *(19, "Runs that repeated themselves"),
        "Sessions that made the same call so often, whatever came between, and those that the watch ever raised as"
        " looping; also where they have ended, or were reported afterwards. The most often repeated call comes first.",
        "session ( repeats:>=$times OR is:looped ) since:$since | group key,title,agent | max(repeats) | top 50",
        (Parameter("times", "At least", "number", "5", help="times the same tool and arguments"), _since("7d")),
    ),
    Question(
        *(20, "Ran where nobody was asked"),
        "Effects that a rule would have held, and that ran because the project only observed, or before it had rules:"
        " of what was imported, where it was judged.",
        "effect judged:[ask,deny] basis:[observe,import] attempts:>0 since:$since",
        (_since("7d"),),
    ),
    Question(
        *(21, "Acted on more than once"),
        "Effects that ran on the resource of another of their tool, whatever their arguments: in one session or in"
        " several, a row for each tool and resource. Most are meant; those whose arguments agree stand in question 18.",
        "effect again:target state:[acknowledged,dispatched,unknown] tool:$tool $words since:$since"
        " | group tool,resource | count, distinct(intent), distinct(session) | top 50",
        (
            Parameter("tool", "Tool", optional=True, like="effect.tool"),
            Parameter("words", "Words", "words", optional=True, help="of its tool, target, arguments or result"),
            _since("7d"),
        ),
    ),
)
ALL: Final = (*QUESTIONS, *FURTHER)
# What people come with who know that something happened, and the question that finds it.
BEGINNINGS: Final = (
    ("Something was done twice", 18),
    ("It ran without leave", 7),
    ("Nobody was asked", 20),
    ("An exemption was used after its end", 10),
    ("A run went in circles", 19),
    ("A reviewer did not look", 9),
    ("Nobody knows whether it happened", 6),
)
BY_NUMBER: Final = {one.number: one for one in ALL}


def fill(question: Question, given: Mapping[str, str]) -> str:
    """The text of the query with `given` in the place of its parameters. Raises MissingError; other names are ignored.

    Whatever a value holds, it is one value of one condition.
    """
    filled = {one.name: _value(question, one, given.get(one.name, "").strip()) for one in question.parameters}
    said = {one.name for one in question.parameters if one.kind == "words"}
    words = []
    for word in question.template.split(" "):
        name = next((name for name in filled if word.endswith(f"${name}")), None)
        if name is None:
            words.append(word)
        elif filled[name]:
            quoted = editing.between_quotes if name in said else editing.quoted
            words.append(word.removesuffix(f"${name}") + quoted(filled[name]))
    return " ".join(words)


def _value(question: Question, parameter: Parameter, text: str) -> str:
    text = text or parameter.default
    if not text:
        if parameter.optional:
            return ""
        raise MissingError(parameter.name, f"“{question.name}” asks for this: {parameter.label.lower()}.")
    if len(text) > LONGEST_VALUE or "\0" in text:
        raise MissingError(parameter.name, f"{parameter.label} has at most {LONGEST_VALUE} characters, and no NUL.")
    try:
        if parameter.kind == "moment":
            values.moment(One(text, 0), 0)
        elif parameter.kind == "length":
            values.length(One(text, 0))
        elif parameter.kind == "number":
            values.whole(One(text, 0))
    except Fault as fault:
        raise MissingError(parameter.name, fault.sentence) from None
    return text


__all__ = ["ALL", "BEGINNINGS", "BY_NUMBER", "FURTHER", "QUESTIONS", "MissingError", "Parameter", "Question", "fill"]
