"""What the words of a module are, compared with Python's own tokens and syntax tree."""

import ast
import io
import tokenize

import pytest

from tests.sources import (
    find_comments,
    find_definitions,
    find_public_functions,
    list_sources,
    read_code,
    read_source,
    remove_comments,
    strip_text,
)

pytestmark = pytest.mark.once
# A text has a comment's sign, a comment has a text's, and a text has the sign of another text.
SOURCE = r'''
def read(): return "# no comment", '\'', R"\"# neither"  # "a comment"
class Kept:
    """It says 'def no_function(): ...'
def nor_this(): ...
    # not this"""
    async def _again(self): return f"{[each for each in '#']}"  # it's another
'''


def test_comments_and_strings_are_told_apart() -> None:
    assert [*find_comments(SOURCE)] == ['# "a comment"', "# it's another"]
    assert [*find_definitions(strip_text(SOURCE))] == ["read", "Kept", "_again"]
    assert [*find_public_functions(strip_text(SOURCE))] == ["read"]
    assert "f\"{[each for each in '#']}\"" in strip_text(SOURCE)
    assert ast.dump(ast.parse(remove_comments(SOURCE))) == ast.dump(ast.parse(SOURCE))


def test_words_of_modules_are_those_of_their_tokens_and_trees() -> None:
    for file in list_sources(["shell", "db", "tests/shell"]):
        source = read_source(file)
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
        assert [*find_comments(source)] == comments, file
        tree = ast.parse(source)
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names = [node.name for node in ast.walk(tree) if isinstance(node, kinds)]
        assert sorted(find_definitions(read_code(file))) == sorted(names), file
