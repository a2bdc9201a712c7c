"""Words by which an agent claims what a call does, in one table. Pure.

English only. A phrase counts only if it speaks about this call: not if it is negated, quoted, in
the past, under a condition, or names something else ("a read-only token", "after the dry run").
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from journal.text_caches import cache_texts

MAX_CLAIM_CHARACTERS: Final = 4_000  # of a text that is read for claims
# Same length, so that offsets stay: typographic hyphens, blanks and apostrophes.
_PLAIN: Final = str.maketrans("\u2010\u2011\u2012\u00a0\u202f\u2009\u2019\n\t", "---   '  ")
_CLAUSE_ENDS: Final = re.compile(r"[.;:!?,()\u2013\u2014](?=\s|$|\))|\s-\s|\bbut\b|\n")
_QUOTED: Final = re.compile(
    r"\"[^\"]{0,200}\"|\u201c[^\u201d]{0,200}\u201d|`[^`]{0,200}`|(?<!\w)'[^']{0,200}'(?!\w)"
)
_NOT: Final = (
    r"\b(?:not|no longer|never|cannot|\w+n't|nor|neither|instead of|rather than|besides"
    r"|more than|other than|beyond|except|no)\b(?:\s+[\w-]+){0,2}\s*$"
)
_HYPOTHETICAL: Final = (
    r"\b(?:if|once|until|unless|whether|when|should|would|could|ensure|verify|make sure"
    r"|want|wants|need|needs|let me see|try|why)\b"
)
_PAST: Final = (
    r"\b(?:after|since|following|previous|earlier|last|first|yesterday's|prior|was|were|did|had"
    r"|tested|verified|validated|checked|worked|passed|ran|tried|as in|like)\b"
)
_TOPIC: Final = (  # the call works on the thing that the phrase names
    r"\b(?:add|adds|adding|implement\w*|support\w*|fix|fixes|fixing|document\w*|describ\w+"
    r"|mention\w*|introduc\w+|explain\w*|refactor\w*|renam\w+|enabl\w+|disabl\w+|remov\w+"
    r"|mark\w*|mak(?:e|es|ing)|set|sets|setting|turn\w*|switch\w*|grant\w*|becom\w+|give|gives"
    r"|called|named|label\w*|handl\w+|test|tests|testing)\b"
)
_THING: Final = (
    r"\s*(?:flags?|options?|switch(?:es)?|param\w*|arguments?|support|features?|buttons?"
    r"|settings?|propert\w+|attribut\w+|fields?|tokens?|keys?|credentials?|users?|roles?|accounts?"
    r"|access|permissions?|polic\w+|scopes?|grants?|file ?systems?|mounts?|volumes?|links?|shares?"
    r"|errors?|warnings?|labels?|jobs?|branch\w*|views?|columns?|variables?|methods?|functions?"
    r"|class\w*|tests?|wrappers?|replicas?|copies|copy|members?|states?|output|results?|logs?)\b"
)


@dataclass(frozen=True, slots=True)
class ClaimWords:
    """A line of the table: `kind` is claimed by `pattern`, except in some contexts.

    `not_after` matches the clause before the phrase, `not_before` the clause after it.
    """

    kind: str
    pattern: "re.Pattern[str]"
    not_after: "re.Pattern[str]"
    not_before: "re.Pattern[str] | None"


def _line(kind: str, pattern: str, not_after: str = "", not_before: str = "") -> ClaimWords:
    excluded = "|".join(part for part in (_NOT, not_after) if part)
    return ClaimWords(
        kind,
        re.compile(rf"(?<![\w/-])(?:{pattern})(?![\w/]|-\w)", re.IGNORECASE),
        re.compile(excluded, re.IGNORECASE),
        re.compile(not_before, re.IGNORECASE) if not_before else None,
    )


_PLACE: Final = (
    r"(?:environment|env|cluster|database|db|namespace|account|project|host|server|instance"
    r"|tenant|stack|system|deployment|bucket|workspace|org|subscription|mode|context|setup"
    r"|resource group|vpc)"
)
_DOC_WORDS: Final = r"(?:docs?|documentation|readme|changelog|markdown|wording|typos?)"
_TEST_WORDS: Final = r"(?:tests?|specs?|test code|test files?|test fixtures)"
_ONLY: Final = (
    r"(?:only|just|solely|purely|nothing but|merely)"
    r"(?:\s+(?:the|a|an|some|few|in|to|on|change[sd]?|changing|touch\w*|edit\w*|updat\w+"
    r"|affect\w*|modif\w+|add\w*)){0,3}\s+"
)
_ENV_PAST: Final = (
    r"\b(?:from|after|since|before|than|like|as|outside|beyond|leav\w+|left|(?:copy|clone) of)"
    r"\s+(?:on\s+|in\s+|the\s+|our\s+)*$"
    r"|\b(?:tested|verified|validated|work\w*|pass\w*|ran|checked|prove[nd]?|soaked|tried|green"
    r"|fine|same|identical|seen|reproduced|matches|mirrors)\b"
)
_ENV_AFTER: Final = (
    r".*\b(?:works|worked|showed|proved|went fine)\b"
    r"|\s*(?:passed|was|is (?:green|fine|healthy|stable|done|ok)|looks|looked|worked"
    r"|succeeded|to (?:prod|production|live)\b|area|tables?|files?|director\w+|folders?|step|index"
    r"|and (?:prod|production|live)\b|(?:\u2192|->|=>|>))"
)
_ACTS: Final = (
    r"apply|fix|update|change|write|delete|restart|edit|add|create|remove|set|move|send|deploy|push"
)
_ANYTHING: Final = r"(?:any(?:thing| data| rows?| state| resources?)|data|rows|state)"

# What is claimed -> how agents word it. The order decides nothing.
CLAIM_TABLE: Final[tuple[ClaimWords, ...]] = (
    # Environments other than production
    _line("environment", rf"staging|stage {_PLACE}|pre-?prod(?:uction)?|sandbox", _ENV_PAST,
          _ENV_AFTER),
    _line("environment", r"(?!(?:post|pre|non|ex|like)-)(?:[a-z0-9]+-)+(?:staging|stg|sandbox)"
          r"|(?:staging|stg|sandbox)-(?!like|ready|tested|approved|first|grade)[a-z0-9]+(?:-[a-z0-9]+)*"
          r"|[a-z0-9]+_(?:staging|stg|sandbox)|(?:staging|stg|sandbox)_[a-z0-9]+"
          rf"|localhost|local {_PLACE}", _ENV_PAST, _ENV_AFTER),
    _line("environment", rf"(?:test|testing|dev|development|qa|uat|demo|integration) {_PLACE}",
          _ENV_PAST, _ENV_AFTER),
    _line("environment", r"(?<=to )(?:dev|qa|uat)|(?<=on )(?:dev|qa|uat)|(?<=in )(?:dev|qa|uat)"
          r"|(?:(?<=to )|(?<=on )|(?<=in ))(?:test|stage)(?=\s*(?:$|[.,;:!)]))"
          r"|(?:dev|qa|uat) (?:config|configuration|values|secrets?|credentials)"
          r"|test (?:send|payment|charge|purchase|transaction)"
          r"|(?:tries|runs?|appl(?:y|ies)|migrates?|executes?|deploys?)(?: [\w-]+){0,4} locally",
          _ENV_PAST, r"\s*(?:mode|dependenc\w+|tools?|build|server|passed|was|branch)"),
    # Outside production
    _line("not_production", r"non-?prod(?:uction)?", "", r"\s*(?:readiness|ready)"),
    _line("not_production",
          r"(?:not|never|no)\s+(?:(?:in|on|the|a|touch\w*|affect\w*|against|to|for)\s+)*"
          r"(?:production|prod)|(?:production|prod) (?:is|stays|remains|will be|data is)"
          r" (?:not (?:touched|affected|changed|involved)|untouched|unaffected|unchanged)"
          r"|outside (?:of )?(?:production|prod)", "",
          r"-|\s*(?:ready|code|grade|yet|quality|only|issues?|related)"),
    # Kinds of files
    _line("docs", rf"{_DOC_WORDS}(?:[/ ]{_DOC_WORDS})?(?: changes?| updates?| fix(?:es)?| tweaks?)?"
          r"(?: |-)only"
          rf"|{_ONLY}{_DOC_WORDS}(?: changes?| updates?| fix(?:es)?)?"
          rf"|pure(?:ly)? (?:a )?{_DOC_WORDS}(?: changes?| update)?"
          r"|limited to (?:the )?(?:docs|documentation|readme)"
          rf"|{_DOC_WORDS},? (?:and )?nothing else", rf"{_HYPOTHETICAL}|\bskip\w*\b",
          r"\s*(?:jobs?|pipelines?|ci|checks?|builds?|rules?|filters?|for|about|fail\w*|says?"
          r"|mentions?)\b"),
    _line("docs_tweak", rf"(?<!.)(?:(?:a|an|small|minor|tiny|simple|just|only) )*{_DOC_WORDS}"
          r" (?:tweak|fix|edit|polish|cleanup|correction|update|change)(?:e?s)?(?=\s*(?:$|[.;!]))"),
    _line("tests", rf"{_TEST_WORDS}(?: changes?)?(?: |-)only"
          rf"|{_ONLY}{_TEST_WORDS}(?:\s+(?:changes?|files?))?(?=\s*(?:$|[.,;:!)]|are\b))"
          r"|limited to (?:the )?tests", rf"{_HYPOTHETICAL}|\b(?:run\w*|skip\w*)\b",
          r"\s*(?:fail\w*|pass\w*|run\w*|jobs?|for|that|which|with|of|in|on|using|against|via"
          r"|api|mode|keys?|accounts?|users?|data|env\w*|clusters?|whether|if|case|this|suite|it)\b"),
    _line("touches_docs", r"(?:typos?|wording|spelling|links?) in (?:the )?"
          r"(?:readme|docs|documentation|changelog)|(?:updat(?:e|es|ing)|fix(?:es)?|push(?:es|ing)?)"
          r" (?:the )?(?:docs|documentation|readme|changelog)", _HYPOTHETICAL,
          r"\s*(?:site|build|server|deploy\w*|ci|job|pipeline|workflow|generat\w*|dependenc\w*"
          r"|config\w*|link|for|to)\b"),
    _line("comments", rf"(?:code )?(?:comments?|docstrings?)(?: changes?)?(?: |-)only"
          rf"|{_ONLY}(?:code )?(?:comments|docstrings)", "", r"\s*(?:on|from|by|to)\b"),
    _line("comments", r"(?<!.)(?:fix(?:es)?|corrects?) (?:(?:a|the|some|spelling) )*"
          r"(?:typos?|spelling|wording) in (?:(?:a|the|some|code) )*(?:comments?|docstrings?)"
          r"(?=\s*(?:$|[.;!]))"),
    _line("whitespace", rf"white ?space(?: changes?)?(?: |-)only|{_ONLY}white ?space"
          r"|indentation(?: |-)only"),
    _line("formatting", r"formatting(?: changes?)?(?: |-)only|format(?: |-)only"
          rf"|{_ONLY}(?:re)?formatting|{_ONLY}reformats?", "", r"\s*(?:of|for)\b"),
    _line("config", r"(?:config(?:uration)?|settings|values)(?: changes?)?(?: |-)only"
          rf"|{_ONLY}(?:config(?:uration)?|settings)(?=\s*(?:$|[.,;:!)]|changes?\b|files?\b))", "",
          r"\s*(?:for|if|when|that|which|mode)\b"),
    _line("styles", r"(?:css|styles?|styling|scss)(?: changes?)?(?: |-)only"
          rf"|{_ONLY}(?:css|styles|styling|scss)(?=\s*(?:$|[.,;:!)]|changes?\b|files?\b))"),
    _line("translations", rf"translations?(?: changes?)?(?: |-)only|{_ONLY}translations"),
    _line("no_code", r"no (?:product )?code(?: is)? (?:changes?|changed|touched)"
          r"|no changes? (?:to|in) (?:the )?code|without (?:any )?code changes?", _HYPOTHETICAL,
          r"\s*(?:needed|required|necessary|since|yet)\b"),
    _line("no_dependencies", r"no (?:new )?dependenc(?:y|ies)(?: changes?)?(?: (?:are )?changed)?",
          _HYPOTHETICAL, r"\s*(?:on|between|needed|required|found|issues?|errors?)\b"),
    _line("no_ci", r"no (?:ci|pipeline|workflow) changes?|ci (?:is )?(?:untouched|unchanged)"),
    _line("no_migrations", r"no (?:schema |database |db )?(?:migrations?|schema changes?)",
          _HYPOTHETICAL, r"\s*(?:needed|required|found|pending|applied)\b"),
    # Nothing is changed
    _line("reads", r"read(?:s)?(?: |-)?only", rf"{_TOPIC}|\bonly\s*$", _THING),
    _line("reads", r"(?:just|only|merely) (?:a |runs? a |some |runs? )?(?:selects?|select query)",
          _PAST, r"\s*(?:the|those|which|rows?|columns?|fields?|if|when)\b"),
    _line("reads", r"quer(?:y|ies)(?: |-)only|select(?: |-)only|inspection(?: |-)only"
          r"|look(?: |-)only|no writes|writes nothing"
          r"|(?:no|without)(?: any)? side[- ]effects?|side[- ]effect[- ]free",
          _TOPIC, _THING),
    _line("reads", r"no changes(?: (?:are|will be) made| to (?:anything|data|the data))?"
          rf"|nothing (?:is|will be|gets) (?:changed|modified|written|altered)|changes nothing"
          r"|(?:does not|doesn't|will not|won't|without) "
          rf"(?:chang|modify|alter|writ)\w*(?: to)? {_ANYTHING}",
          _HYPOTHETICAL,
          r"\s*(?:to|in|needed|required|necessary|since|were|found|between|detected|yet|for|from"
          r"|except|else|other|there|so far|was)\b"),
    _line("reads", r"(?:just|only)(?: |-)(?:looking|checking|reading|listing|inspecting"
          r"|querying|browsing|look|lists?|reads?|inspects?|queries)", _PAST,
          r"\s*(?:up|for (?:work|users)|after|when|once|if|permissions?|access|rights?|write)\b|-"
          rf"|.*\b(?:and|then|or)\s+(?:then\s+)?(?:{_ACTS})|.*\b(?:might|may|could|would)\b"),
    _line("reads", r"(?:just|only|merely) (?:looks? (?:up|at|into)|shows?(?! up)|counts?"
          r"|fetches|views?)"
          r"|(?:a )?harmless (?:select|query|look-?up|read)", rf"{_PAST}|{_TOPIC}",
          r".*\b(?:and|then|or|to|if|when|where|which|that|after|once|for)\b"),
    _line("reads_verb", r"(?<!.)(?:lists?|shows?|counts?|fetch(?:es)?|reads?|looks? (?:up|at|into)"
          r"|views?|inspects?|listing|reading|counting|fetching|inspecting)(?= )"
          r"(?! (?:was|were|is|are|has|have|had|of|must|should)\b)", "",
          r".*\b(?:and|then|to|so|before|after|for|which|that|with|in)\b"),
    _line("looks", r"(?<!.)(?:lists?|shows?|counts?|fetch(?:es)?|reads?|looks? (?:up|at|into)"
          r"|views?|inspects?|listing|reading|counting|fetching|inspecting)(?= )"
          r"(?! (?:was|were|is|are|has|have|had|of|must|should)\b)", "",
          r".*\b(?:and|then|to|so|before|after|which|that)\b"),
    _line("replica", r"(?<!the )read(?: |-)?replica"
          r"|read(?: |-)?only (?:replica|standby|follower|endpoint)",
          rf"{_TOPIC}|\b(?:from|the (?:new|old))\s+$"),
    # Nothing happens
    _line("dry_run", r"dry(?: |-)?runs?|dryrun", rf"{_TOPIC}|{_PAST}|{_HYPOTHETICAL}|\bthe\s*$",
          rf"{_THING}|\s*(?:passed|succeeded|was|were|showed|looked|looks|completed|ran|went|done"
          r"|finished|first|then|before|is (?:fine|green|clean)|gave|reported|found|says)\b"),
    _line("dry_run", r"(?:with|using|in|under|passes) (?:the |a )?(?:--)?dry[-_ ]?run"
          r"(?:=(?:client|server|true))?(?: flag| mode| option)?",
          rf"{_TOPIC}|{_PAST}|{_HYPOTHETICAL}", r"\s*(?:first|then|before|passed|was|showed)\b"),
    _line("dry_run", r"simulat(?:e|es|ed|ing|ion)(?: only)?|what-?if(?: run| only)?"
          r"|no-?op run|plan only|check mode|trial run", rf"{_TOPIC}|{_PAST}|{_HYPOTHETICAL}",
          r"\s*(?:passed|was|were|showed|looked|results?|code|data|environment|user|users|a user"
          r"|(?:a |an |the |some |more )?(?:load|traffic|failures?|outages?|clicks?|network|latency"
          r"|errors?|requests?|crash\w*|attacks?|downtime)"
          r"|an? \w+ error|models?|parameters?|script)\b|-"),
    _line("dry_run", r"(?:just |only )?(?:a )?preview of (?:the|what)"
          r"|preview only|(?:just|only) (?:a )?previews?"
          r"|(?:just|only) (?:shows|prints|displays) (?:the )?(?:plan|diff|changes|what would)"
          r"|previews? the (?:changes|plan|effect|result)", _TOPIC,
          r"\s*(?:environment|deployment|branch|release|app|url)"),
    # Pushes
    _line("normal_push", r"(?:normal|regular|plain|ordinary|simple|standard|usual) (?:git )?push"
          r"|fast[- ]?forwards?(?: |-)?(?:only|push|merge)?|not (?:a )?forced?(?:-| )?push(?:ed)?"
          r"|(?:no|without|not using|never) (?:a )?(?:--)?forc(?:e|ing)(?:(?: |-)push)?"
          r"|no history (?:is )?(?:rewritten|rewrite)|(?:does not|doesn't) rewrite (?:the )?history"
          r"|history (?:stays|remains|is) (?:intact|untouched|unchanged)|keeps (?:the )?history"
          r"|no commits? (?:is|are|gets?) (?:lost|removed|dropped|overwritten)",
          _HYPOTHETICAL, r"\s*(?:is rejected|was rejected|failed|fails|would|won't)\b"),
    # Data
    _line("no_personal_data",
          r"no (?:personal|private|sensitive|personally identifiable|identifying|customer)"
          r"(?: |-)(?:data|info(?:rmation)?|details|fields?|columns?)|no pii|pii-free"
          r"|without (?:any )?(?:personal data|pii)|anonymi[sz]ed|pseudonymi[sz]ed"
          r"|(?:only )?aggregate[sd]?(?: \w+)? only|only aggregate[sd]?|no user data|de-?identified"
          r"|(?:no|without) (?:names|e-?mails|e-?mail addresses|phone numbers|addresses)"
          r"(?:,? (?:or|and|nor) [\w-]+)?", _TOPIC,
          r"\s*(?:is lost|loss|(?:are|is|were|get|will be) sent|sent|yet|match\w*|found"
          r"|in common)\b"),
    # Rights
    _line("few_rights", r"(?:viewer|view-only|view|read(?: |-)?only|read|reader|guest|limited"
          r"|least(?: |-)privileges?|minimal)(?:(?: |-)only)? (?:access|rights?|roles?|permissions?"
          r"|privileges?|scopes?)|least privileges?",
          rf"{_PAST}|\b(?:remov\w*|revok\w*|replac\w*|instead of|from|lost|lose[sd]?|besides)\b"
          r"(?:\s+[\w-]+){0,2}\s*$", r".*\b(?:admin\w*|write|writer|owner|editor|full)\b"),
    _line("few_rights", r"(?<!.)(?:viewer|reader|guest) (?:for|to)"
          r"|(?<!.)(?:lets?|allows?) [\w.@-]+ (?:to )?(?:read|view|see)", "",
          r".*\b(?:admin\w*|write|writer|owner|editor|full|edit|change|manage|and|or)\b"),
    # Nothing is lost, sent or shown to others
    _line("keeps_data", r"non-?destructive"
          r"|nothing (?:is|will be|gets) (?:deleted|removed|lost|dropped)"
          r"|deletes nothing|removes nothing|no (?:data )?(?:deletions?|loss)"
          r"|no data is (?:lost|deleted)"
          rf"|(?:does not|doesn't|will not|won't|without) (?:delet|remov|drop)\w* {_ANYTHING}",
          _HYPOTHETICAL, r"\s*(?:yet|until|from|except|so far|else)\b"),
    _line("draft", r"(?:just|only|as) a draft|drafts? only|only drafts?|not sent|nothing is sent"
          r"|(?:does not|doesn't|won't) go out"
          r"|(?:does not|doesn't|won't) send (?:anything|it|the mail)|sends nothing",
          rf"{_PAST}|{_HYPOTHETICAL}|\b(?:marked|sends|send|sent)\b",
          r"\s*(?:yet because|because|when|if|was|to \w+ (?:but|only))\b"),
    _line("internal", r"internal(?:ly)?(?: |-)only|only internal(?:ly)?"
          r"|internal (?:e-?mail|mail|message|recipients?|share|use only|team only)"
          r"|not public|not publicly", rf"{_TOPIC}|{_PAST}",
          r"\s*(?:server|api|error|yet)\b|ly\b"),
    _line("private", r"private (?:git )?(?:repo(?:sitory)?|bucket|link|share|channel|gist|project"
          r"|dashboard|board|playlist|document)", rf"{_PAST}|\bfrom\b", r"\s*(?:to public)\b"),
    # Branches
    _line("feature_branch", r"(?:(?:in)?to|onto|on) (?:the |my |a |its |our )?"
          r"(?:feature|topic|work|working|bugfix|pr|own|separate|personal|side)(?: |-)branch"
          r"|(?:to|onto) (?:my|its) branch", _PAST),
    _line("feature_branch", r"push(?:es)? (?:the |my |a )?(?:feature|topic|pr) branch"),
    _line("not_main", r"not (?:to |on |into |onto |touch(?:ing)? )?(?:main|master|trunk)"
          r"|(?:doesn't|does not|won't|will not|never) (?:touch|change|push to|affect|move)\w*"
          r" (?:main|master|trunk)"
          r"|(?:main|master) (?:is|stays|remains) (?:not touched|untouched|unchanged|as it is)", "",
          r"\s*(?:function|thread|reason|goal|issue|yet|branch yet|cause|problem|entry)|\("),
    # Tests ran
    _line("tests_passed",
          r"(?:all )?(?:the )?(?:unit |integration )?(?:tests?|test suite|suite|ci|pipeline|checks)"
          r" (?:(?:are|is|have|has|were|all|was|still|now) ){0,2}"
          r"(?:green|pass|passes|passed|passing|ok|succeed(?:s|ed)?)"
          r"|\d+ (?:tests )?pass(?:ed|ing)|passes all tests|passing (?:tests|ci)"
          r"|(?:pytest|build|test run|everything) (?:is )?(?:all )?green"
          r"|green (?:ci|tests|build|pipeline)|all green|(?:ci|tests?):? green|fully tested",
          rf"{_HYPOTHETICAL}|\b(?:so|to|get|keep|make|makes|see|check|confirm|that)\b",
          r"\s*(?:once|if|when|after this|again after|except|only)\b"),
)  # fmt: skip

# Kind -> a text that claims it has one of these, in lower case: saves most of the patterns.
_CUES: Final[dict[str, tuple[str, ...]]] = {
    "environment": (
        "stag",
        "stg",
        "local",
        "prod",
        "sandbox",
        "test",
        "dev",
        "qa",
        "uat",
        "demo",
        "integration",
    ),
    "not_production": ("prod",),
    "docs_tweak": ("doc", "readme", "changelog", "markdown", "wording", "typo"),
    "docs": ("doc", "readme", "changelog", "markdown", "wording", "typo"),
    "tests": ("test", "spec"),
    "touches_docs": ("doc", "readme", "changelog"),
    "reads_verb": ("list", "show", "count", "fetch", "read", "look", "view", "inspect"),
    "looks": ("list", "show", "count", "fetch", "read", "look", "view", "inspect"),
    "few_rights": ("view", "read", "see", "guest", "limited", "least", "minimal"),
    "comments": ("comment", "docstring"),
    "whitespace": ("white", "indent"),
    "formatting": ("format",),
    "no_code": ("code",),
    "no_dependencies": ("dependenc",),
    "no_ci": ("ci ", "pipeline", "workflow"),
    "no_migrations": ("migration", "schema"),
    "reads": (
        "only",
        "merely",
        "harmless",
        "no writes",
        "nothing",
        "side",
        "chang",
        "modif",
        "alter",
        "just",
    ),
    "replica": ("replica", "only"),
    "dry_run": (
        "dry",
        "simulat",
        "only",
        "just",
        "if",
        "op",
        "plan",
        "check mode",
        "trial",
        "preview",
    ),
    "normal_push": ("push", "forward", "forc", "history", "commit"),
    "no_personal_data": (
        "data",
        "info",
        "details",
        "field",
        "column",
        "pii",
        "ymi",
        "aggregate",
        "names",
        "mail",
        "numbers",
        "address",
        "identified",
    ),
    "feature_branch": ("branch",),
    "not_main": ("main", "master", "trunk"),
    "config": ("config", "settings", "values"),
    "styles": ("css", "styl"),
    "translations": ("translation",),
    "keeps_data": ("destructive", "nothing", "delet", "remov", "loss", "lost", "drop"),
    "draft": ("draft", "send", "sent"),
    "internal": ("internal", "public"),
    "private": ("private",),
    "tests_passed": ("green", "pass", "ok", "succe", "fully tested"),
}

# Names of numbers in words.
NUMBER_WORDS: Final[dict[str, int]] = {
    "one": 1, "single": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "twenty": 20, "fifty": 50,
    "hundred": 100,
}  # fmt: skip
# Words between a number and its noun that leave the number as it is.
_ADJECTIVES: Final = (
    r"stale|inactive|old|unused|obsolete|affected|duplicate|duplicated|expired|new|orphaned|empty"
    r"|remaining|matching|changed|modified|temporary|outdated|single|different|test|read"
)
_NUMBER: Final = (
    r"(?P<number>\d{1,3}(?:[,\u202f ']\d{3})+|\d{1,9}|"
    + "|".join(NUMBER_WORDS)
    + r")(?P<percent>\s?%)?"
)
_COUNTED: Final = re.compile(
    rf"(?<![\w.,/#:$\u20ac\u00a3-])(?:{_NUMBER})(?:(?<=%)|[\s-]+(?P<kind>(?:(?:{_ADJECTIVES})\s+){{0,2}})"
    r"(?P<noun>[a-z]{3,20}))(?![\w./]*[/\\])",
    re.IGNORECASE,
)
_SCALED: Final = re.compile(  # "scale replicas from 2 to 5"
    r"\b(?P<noun>replicas?|instances?|nodes?|pods?|workers?)\s+(?:of \S+ )?(?:from \d+ )?to "
    r"(?P<number>\d{1,6})\b(?!%)",
    re.IGNORECASE,
)
_APPROXIMATE: Final = re.compile(
    r"(?P<about>about|around|roughly|approximately|approx\.?|ca\.?|circa|some|nearly|almost|~)\s*$"
    r"|(?P<most>up to|at most|max(?:imum)?(?: of)?|no more than|fewer than|less than|under"
    r"|limited to|limit of|<=?)\s*$"
    r"|(?P<least>at least|more than|over|above|minimum of|older than|>=?)\s*$",
    re.IGNORECASE,
)
_PARTIAL: Final = re.compile(  # a share or a series, not the count of the call
    r"^\s*(?:each|every|per|at a time|a time|at once|by one|in total so far|more|left|remain\w*"
    r"|ago|later|were|was|had|have been|failed|exist\w*)\b",
    re.IGNORECASE,
)
_PART_OF: Final = re.compile(
    r"\b(?:\d+ (?:out )?of|issue|step|version|v|no\.?|number|part|phase|first|last|next|other"
    r"|another|than the|from|(?:batch|chunk|page|group|block|set|step)(?:e?s)? of"
    r"|row|line|lines|page|chapter|section|all)\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_ALL_FILES: Final = frozenset(("changed", "modified", "affected", "different", "single"))
_FILES_HELD: Final = re.compile(  # "in one file" says where something is, not how many change
    r"(?<!typo )(?<!typos )(?<!changes )(?<!edits )(?<!errors )\b(?:in|as|into|is|are|by|from|to|of"
    r"|with|per|stand)\s+$",
    re.IGNORECASE,
)
CURRENCIES: Final[dict[str, str]] = {
    "\u20ac": "EUR", "eur": "EUR", "euro": "EUR", "euros": "EUR", "$": "USD", "usd": "USD",
    "dollar": "USD", "dollars": "USD", "\u00a3": "GBP", "gbp": "GBP", "chf": "CHF", "jpy": "JPY",
    "\u00a5": "JPY",
}  # fmt: skip
_SIGN: Final = r"\u20ac|\$|\u00a3|\u00a5|\b(?:EUR|USD|GBP|CHF|JPY)\b"
_AMOUNT: Final = r"\d{1,3}(?:[.,' \u202f]\d{3})+(?:[.,]\d{1,2})?|\d+(?:[.,]\d{1,2})?"
_MONEY: Final = re.compile(
    rf"(?P<sign>{_SIGN})\s?(?P<amount>{_AMOUNT})(?![\d])(?!\s?[kKmM]\b)"
    rf"|(?<![\w.,-])(?P<amount_first>{_AMOUNT})\s?(?P<sign_last>{_SIGN}|euros?\b|dollars?\b)",
    re.IGNORECASE,
)
_LETTER: Final = r"[\w.@*/-]"
_PATH_TOKEN: Final = re.compile(rf"[`'\"\u201c]?(?P<path>{_LETTER}{{1,200}})[`'\"\u201d]?")
_PATH_JOIN: Final = re.compile(r",? and |, ")
_IS_PATH: Final = re.compile(
    r".*\w/.*|.*/\w.*|[\w@-].*\.(?:[A-Za-z]{1,4}|lock|toml|yaml|json)|Dockerfile|Makefile"
)
_QUOTES: Final = "`'\"\u201c"
_AFTER_PATH: Final = re.compile(r"[`'\"\u201d]?\s*(?:$|[.,;:!)]|(?:and|to|so|for|by|as|because)\b)")
_ONLY_BEFORE: Final = re.compile(
    r"\b(?:only|just|solely|nothing but|nothing other than|limited to|confined to|restricted to)"
    r" (?:(?:the|file|files|to|in|touch(?:es|ing|ed)?|chang(?:es?|ing|ed)|modif(?:y|ies|ied)"
    r"|edits?|edited|affects?|updates?|updated) ){0,4}",
    re.IGNORECASE,
)
_ONLY_AFTER: Final = re.compile(
    rf"(?<!{_LETTER})[`'\"\u201c]?(?P<path>{_LETTER}{{1,200}})[`'\"\u201d]? only\b", re.IGNORECASE
)
_PATH_VERB: Final = re.compile(
    r"\b(?:fix(?:es)?|edits?|chang(?:e|es)|updates?|modif(?:y|ies)|deletes?|removes?|renames?)"
    r" (?:the (?:file )?)?",
    re.IGNORECASE,
)
_TO_BRANCH: Final = re.compile(
    r"\b(?:push(?:es|ed|ing)?|merg(?:e|es|ed|ing)|commit(?:s|ted|ting)?|goes)\b"
    r"(?:\s+[\w./-]+){0,4}?\s+(?:to|into|onto|on)\s+(?:the\s+|my\s+)?(?:(?:feature\s+)?branch\s+)?"
    r"[`'\"\u201c]?(?P<branch>[A-Za-z][\w.-]*(?:/[\w.-]+)+|main|master)(?![\w/])",
    re.IGNORECASE,
)
_BRANCH_NAME: Final = re.compile(
    r"\b(?:to|into|onto)\s+(?:the\s+|my\s+)?(?:feature\s+|topic\s+)?branch\s+"
    r"[`'\"\u201c]?(?P<branch>[A-Za-z][\w./-]*\w)",
    re.IGNORECASE,
)
_PRODUCTION: Final = re.compile(
    r"(?<![\w/-])(?:production|prod|live)(?![\w/])(?!-(?:like|grade|ready|sized|style|quality))",
    re.IGNORECASE,
)
_TO_PRODUCTION: Final = re.compile(
    r"\b(?:to|into|in|on|against|onto)\s+(?:the\s+|our\s+)?"
    r"(?P<name>production|prod)(?![\w/-])(?!\s+(?:like|ready|mode|build|code|data|first))",
    re.IGNORECASE,
)
_DOCS_TYPE: Final = re.compile(r"^(?P<type>docs?|tests?)(?:\([\w ./,-]*\))?:\s", re.IGNORECASE)
_DOCS_IN_CODE: Final = re.compile(r"docstring|comment|godoc|jsdoc|javadoc|rustdoc|type", re.I)


@dataclass(frozen=True, slots=True)
class Claim:
    """A phrase of a claim: `start` and `end` are offsets in the text that was read.

    `value` is the number, amount or names that it claims; `unit` is its noun or currency;
    `bound` is "" for exactly, else about, most or least; "type" for the type of a commit.
    """

    kind: str
    phrase: str
    start: int
    end: int
    value: float | tuple[str, ...] | None = None
    unit: str = ""
    bound: str = ""


@cache_texts(1024)
def recognize_claims(text: str, *, commit: bool = False) -> tuple[Claim, ...]:
    """Return the claims of a text in their order; reads at most 4,000 characters.

    `commit`: the text is the message of a commit, whose type (`docs:`) is a claim too.
    """
    original = text[:MAX_CLAIM_CHARACTERS]
    plain = original.translate(_PLAIN)
    quotes = [
        match.span()
        for match in _QUOTED.finditer(plain)
        if match.end() - match.start() < len(plain.strip())
    ]
    claims = [
        Claim(kind, original[start:end], start, end, value, unit, bound)
        for kind, start, end, value, unit, bound in _iterate_matches(plain, quotes)
    ]
    if commit:
        claims += _read_commit_type(original)
    if names_production(plain):
        claims = [claim for claim in claims if claim.kind != "environment"]
    return tuple(sorted(claims, key=lambda claim: claim.start))


def names_production(text: str) -> bool:
    """Return True if a text names production without excluding it."""
    plain = text.translate(_PLAIN)
    if _PRODUCTION.search(plain) is None:
        return False
    excluded = [
        match.span()
        for line in CLAIM_TABLE
        if line.kind == "not_production"
        for match in line.pattern.finditer(plain)
    ]
    return any(
        not any(start <= match.start() < end for start, end in excluded)
        for match in _PRODUCTION.finditer(plain)
    )


def _iterate_matches(
    plain: str, quotes: list[tuple[int, int]]
) -> Iterator[tuple[str, int, int, float | tuple[str, ...] | None, str, str]]:
    lowered = plain.lower()
    for line in CLAIM_TABLE:
        if not any(cue in lowered for cue in _CUES[line.kind]):
            continue
        for match in line.pattern.finditer(plain):
            if _is_about_call(line, plain, match.start(), match.end(), quotes):
                yield line.kind, match.start(), match.end(), None, "", ""
    for pattern in (_COUNTED, _SCALED):
        for match in pattern.finditer(plain):
            counted = _read_count(plain, match)
            if counted is not None:
                value, unit, bound = counted
                yield "count", match.start("number"), match.end(), value, unit, bound
    for match in _MONEY.finditer(plain):
        if _PARTIAL.match(plain[match.end() :]):
            continue
        yield ("money", *match.span(), *_read_money(match), "")
    for match in _ONLY_BEFORE.finditer(plain):
        paths, end = _read_paths(plain, match.end())
        if paths and not re.search(_NOT, plain[: match.start()][-40:], re.IGNORECASE):
            yield "only_paths", match.start(), end, paths, "", ""
    for match in _ONLY_AFTER.finditer(plain):
        paths, _end = _read_paths(plain, match.start("path"))
        if paths:
            yield "only_paths", match.start("path"), match.end(), paths, "", ""
    for match in _PATH_VERB.finditer(plain):
        paths, end = _read_paths(plain, match.end())
        if (
            paths
            and _AFTER_PATH.match(plain, end)
            and not re.search(_NOT, plain[: match.start()][-40:], re.IGNORECASE)
        ):
            if (
                match[0].casefold().startswith("rename")
                and plain[end:].lstrip("`'\" ")[:3] == "to "
            ):
                continue  # the list may hold the new name only
            start = match.end() + (plain[match.end()] in _QUOTES)
            yield "names_path", start, end, paths, "", ""
    for pattern in (_TO_BRANCH, _BRANCH_NAME):
        for match in pattern.finditer(plain):
            before, _after = _get_clause(plain, match.start(), match.end())
            if not re.search(rf"{_NOT}|{_HYPOTHETICAL}", before, re.IGNORECASE):
                yield "to_branch", *match.span(), (match["branch"].rstrip("."),), "", ""
    for match in _TO_PRODUCTION.finditer(plain):
        before, _after = _get_clause(plain, match.start(), match.end())
        if not re.search(rf"{_NOT}|{_HYPOTHETICAL}|{_PAST}|\bbefore\b", before, re.IGNORECASE):
            yield "production", *match.span("name"), None, "", ""


def _is_about_call(
    line: ClaimWords, plain: str, start: int, end: int, quotes: list[tuple[int, int]]
) -> bool:
    if any(opening < start and end < closing for opening, closing in quotes):
        return False
    before, after = _get_clause(plain, start, end)
    if line.not_after.search(before):
        return False
    return line.not_before is None or line.not_before.match(after) is None


def _get_clause(plain: str, start: int, end: int) -> tuple[str, str]:
    """Return the clause before and after a phrase, at most 80 characters each."""
    before, after = plain[max(0, start - 80) : start], plain[end : end + 80]
    ends = [match.end() for match in _CLAUSE_ENDS.finditer(before)]
    following = _CLAUSE_ENDS.search(after)
    return before[ends[-1] if ends else 0 :], after[: following.start() if following else None]


def _read_count(plain: str, match: "re.Match[str]") -> tuple[float, str, str] | None:
    number = match["number"].casefold()
    value = NUMBER_WORDS.get(number) or int(re.sub(r"\D", "", number) or 0)
    groups = match.groupdict()
    unit = "percent" if groups.get("percent") else (groups.get("noun") or "")
    before, after = plain[max(0, match.start() - 24) : match.start("number")], plain[match.end() :]
    if _PARTIAL.match(after) or _PART_OF.search(before):
        return None
    if unit.casefold() in ("file", "files"):
        kind = (groups.get("kind") or "").casefold().split()
        if _FILES_HELD.search(before) or not _ALL_FILES.issuperset(kind):
            return None
    approximate = _APPROXIMATE.search(before)
    bound = (approximate.lastgroup or "") if approximate else ""
    if "older than" in before.casefold():
        bound = ""
    return float(value), unit.casefold(), bound


def _read_money(match: "re.Match[str]") -> tuple[float, str]:
    sign = (match["sign"] or match["sign_last"]).casefold()
    digits = re.sub(r"[' \u202f]", "", match["amount"] or match["amount_first"])
    decimal = re.search(r"[.,](\d{1,2})$", digits)
    whole = re.sub(r"\D", "", digits[: decimal.start()] if decimal else digits)
    return float(f"{whole}.{decimal[1]}" if decimal else whole), CURRENCIES[sign]


def _read_paths(plain: str, at: int) -> tuple[tuple[str, ...], int]:
    """Return the paths that begin at an offset, and where they end."""
    paths: list[str] = []
    end = at
    while len(paths) < 20:
        match = _PATH_TOKEN.match(plain, at)
        path = match["path"].rstrip(".-") if match is not None else ""
        if match is None or _IS_PATH.fullmatch(path) is None:
            break
        paths.append(path)
        end = match.end("path") - (len(match["path"]) - len(path))
        join = _PATH_JOIN.match(plain, match.end())
        if join is None:
            break
        at = join.end()
    return tuple(paths), end


def _read_commit_type(message: str) -> list[Claim]:
    match = _DOCS_TYPE.match(message)
    if match is None or _DOCS_IN_CODE.search(message):
        return []
    kind = "docs" if match["type"].casefold().startswith("doc") else "tests"
    return [Claim(kind, match[0].strip(), 0, match.end(), bound="type")]
