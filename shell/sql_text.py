"""Whether statements of a database only read, where that can be known. Pure."""

import re
from typing import Final

_COMMENTS_AND_TEXTS: Final = re.compile(
    r"(--[^\n]*|/\*.*?\*/)|'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`", re.DOTALL
)
# Where databases differ in where a text or a comment ends: a text may hide a statement there.
# Backslashes before quotes, `$$ … $$`, `#`, `--` without a blank, `/*!` and comments in comments;
# commands of a shell in backquotes; and variables of psql.
_UNCLEAR: Final = re.compile(
    r"\\['\"`]|\$\w*\$|\#|--(?!\s|\Z)|/\*m?!|/\*(?:(?!\*/).)*/\*|\\.*`|(?<![:\w]):[a-z_'\"{]",
    re.DOTALL | re.IGNORECASE,
)
_QUOTED_CALL: Final = re.compile(r"''\s*\(")
_READING: Final = re.compile(r"(?:select|show|explain|describe|desc|with|values|table)\b")
_CHANGING: Final = re.compile(
    r"\b(?:insert|update|delete|drop|alter|create|truncate|grant|revoke|merge|replace|call|do|copy"
    r"|into|lock|vacuum|analyze|analyse|reindex|cluster|refresh|set|reset|begin|commit|rollback"
    r"|execute|exec|prepare|load|attach|detach|outfile|dumpfile|handler|kill|listen|notify|import)\b"
)
_CALL: Final = re.compile(r"([a-z_][a-z0-9_.]*)\s*\(")
_PURE_CALLS: Final = frozenset(
    {
        "abs", "array_agg", "array_length", "avg", "bool_and", "bool_or", "cast", "ceil",
        "char_length", "coalesce", "concat", "count", "current_database", "current_schema",
        "current_user", "date", "date_part", "date_trunc", "datetime", "decode", "exists",
        "extract", "floor", "format", "from_unixtime", "group_concat", "greatest", "hex", "if",
        "ifnull", "in", "age", "json_agg", "json_array_length", "json_build_object",
        "json_extract", "jsonb_agg", "jsonb_array_length", "least", "left", "length", "like",
        "lower", "ltrim", "max", "md5", "min", "mod", "now", "nullif", "obj_description", "over",
        "partition", "pg_database_size", "pg_get_constraintdef", "pg_get_indexdef",
        "pg_get_viewdef", "pg_relation_size", "pg_size_pretty", "pg_total_relation_size",
        "position", "power", "random", "rank", "replace", "right", "round", "row_number", "rtrim",
        "sqrt", "strftime", "string_agg", "substr", "substring", "sum", "to_char", "to_date",
        "to_timestamp", "trim", "typeof", "unix_timestamp", "upper", "using", "values", "version",
        "year", "month", "day", "and", "or", "not", "select", "on", "as", "by", "where", "from",
        "any", "all", "distinct", "lag", "lead", "dense_rank", "first_value", "last_value",
    }
)  # fmt: skip
_PSQL_READS: Final = re.compile(
    r"\\(?:[dlzx?]\S*|conninfo|timing|q|pset|a|t|sf\S*|sv\S*|echo)(?:\s|$)"
)
_SQLITE_READS: Final = re.compile(
    r"\.(?:tables|schema|headers?|mode|databases|indexes|indices|width|quit|exit|help|show|dbinfo"
    r"|nullvalue|timer|dump|fullschema)(?:\s|$)"
)
_PRAGMA: Final = re.compile(
    r"pragma\s+(?:table_info|table_xinfo|index_list|index_info|foreign_key_list|database_list"
    r"|integrity_check|quick_check|user_version|schema_version|page_count)\s*(?:\([^)]*\))?$"
)
_LONGEST: Final = 20_000  # characters that are read; longer statements are not known to read
_REDIS_READS: Final = frozenset(
    {
        "get", "mget", "keys", "scan", "ttl", "pttl", "type", "exists", "strlen", "getrange",
        "hget", "hgetall", "hkeys", "hvals", "hlen", "hmget", "hexists", "hscan", "lrange",
        "llen", "lindex", "smembers", "sismember", "scard", "sscan", "srandmember", "zrange",
        "zrangebyscore", "zscore", "zcard", "zcount", "zrank", "zrevrange", "zscan", "info",
        "ping", "dbsize", "lastsave", "time", "xlen", "xrange", "xrevrange", "xinfo", "pubsub",
        "memory", "object", "echo", "bitcount", "getbit", "pfcount", "dump",
    }
)  # fmt: skip
_REDIS_DESTROYS: Final = frozenset({"flushall", "flushdb", "shutdown", "del", "unlink", "debug"})
_MONGO_READS: Final = re.compile(
    r"(?:show\s+\w+|db(?:\.getSiblingDB\([^()]*\))?(?:\.getCollection\([^()]*\)|\.\w+)*"
    r"\.(?:find|findOne|count|countDocuments|estimatedDocumentCount|distinct|stats|getIndexes"
    r"|getCollectionNames)\([^()]*\)(?:\.(?:limit|sort|skip|pretty|toArray|count)\([^()]*\))*)"
)


def is_reading_sql(text: str) -> bool:
    """True if every statement only reads, as far as its words show; functions must be known."""
    if len(text) > _LONGEST or _UNCLEAR.search(text):
        return False
    plain = _COMMENTS_AND_TEXTS.sub(lambda part: " " if part[1] else " '' ", text).lower()
    statements = [part for part in re.split(r"[;\n]\s*(?=\\|\.)|;", plain) if part.strip()]
    return bool(statements) and all(_is_reading_statement(part.strip()) for part in statements)


def _is_reading_statement(statement: str) -> bool:
    if statement.startswith("\\"):  # what follows another backslash is another command
        return "\\" not in statement[1:] and _PSQL_READS.match(statement) is not None
    if statement.startswith("."):
        return _SQLITE_READS.match(statement) is not None
    if statement.startswith("pragma"):
        return _PRAGMA.fullmatch(statement) is not None
    if not _READING.match(statement) or _CHANGING.search(statement) or "\\" in statement:
        return False
    if _QUOTED_CALL.search(statement):
        return False
    if re.match(r"explain\s*\([^)]*analy", statement):
        return False
    return all(name in _PURE_CALLS for name in _CALL.findall(statement))


def is_reading_redis(words: list[str]) -> bool:
    """True if a Redis command is a known read."""
    return bool(words) and words[0].lower() in _REDIS_READS


def is_destroying_redis(words: list[str]) -> bool:
    """True if a Redis command is known to delete."""
    return bool(words) and words[0].lower() in _REDIS_DESTROYS


def is_reading_mongo(text: str) -> bool:
    """True if a text for mongosh is one known read."""
    # A template in backquotes can call a function without parentheses.
    return "`" not in text and _MONGO_READS.fullmatch(text.strip().rstrip(";")) is not None
