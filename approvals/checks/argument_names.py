"""The words in names of arguments that say what a value is. Pure; imports no Django."""

import re
from typing import Final

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def split_name(name: str) -> frozenset[str]:
    """Return the words of a name: kubeContext and kube_context are {kube, context}."""
    return frozenset(word.lower() for word in _WORDS.findall(name))


# Where or for whom a call works.
CATEGORIES: Final = split_name(
    "account beneficiary branch bucket channel cluster context currency customer database "
    "creditor datacenter db debtor device domain endpoint env environment group host hostname "
    "iban instance merchant namespace network org organisation organization owner partition payee "
    "profile project provider realm ref region registry remote repo repository role schema server "
    "site stage subscription supplier team tenant user vendor warehouse workspace zone"
)
# How much of something; numbers with units are magnitudes under any name but the next ones.
MAGNITUDES: Final = split_name(
    "age amount balance bytes capacity cents charge cost count credit days discount disk "
    "eur fee gb gbp gib hours instances kb mb mib nodes percent price qty quantity "
    "recipients records refund replicas rows share size storage sum total usd users weight"
)
# Numbers that are no amounts.
NO_MAGNITUDES: Final = split_name(
    "delay id index interval key line number offset page port retries retry timeout ttl "
    "version wait"
)
# Lists whose length counts.
RECIPIENTS: Final = split_name("bcc cc recipient recipients to")
# Times since something was used: a small one is remarkable.
AGES: Final = split_name("accessed age idle last mounted seen since unused used")
# Switches that destroy.
DESTRUCTIVE: Final = split_name(
    "cascade delete destroy drop force forced irreversible permanent permanently prod "
    "production prune purge truncate wipe"
)
# Switches that go around a control.
RISKY: Final = split_name(
    "admin bypass disable overwrite privileged public recursive skip sudo unsafe"
)
# Switches that make a call harmless.
HARMLESS: Final = split_name("dry dryrun preview sandbox simulate")
# Texts that people read; words in them are no facts of the call.
PROSE: Final = split_name(
    "body comment content description html message note notes prompt query reason subject "
    "summary text thought title why"
)
# Names of things; each thing has its own.
NAMES: Final = split_name(
    "cmd command digest dir file filename folder hash id ids key name names path pattern "
    "sha term token url uuid word"
)
