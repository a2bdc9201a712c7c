"""Follow a shell command without running it: which programs it runs with which words.

tree-sitter-bash parses (docs/decisions/0035-shell-commands.md). This module walks the tree in the
order of execution with the values of variables that are known, follows functions, aliases, `eval`,
`sh -c` and what else runs a command, and lists the simple commands. Whatever it does not understand
becomes an unclear command, never nothing.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

import tree_sitter
import tree_sitter_bash

from shell.argument_readers import NO_STDIN, Stdin
from shell.word_pieces import (
    Piece,
    TooManyWordsError,
    build_words,
    decode_ansi,
    split_escapes,
    unescape_quoted,
)
from shell.words import Word, make_word
from shell.wrappers import (
    OTHER_SHELLS,
    Inner,
    UnclearError,
    get_program_name,
    unwrap_words,
)

MAX_CHARACTERS: Final = 65_536  # longer commands are not parsed
MAX_COMMANDS: Final = 200  # simple commands of one command
MAX_DEPTH: Final = 60  # nesting of the syntax
MAX_NESTING: Final = 8  # commands inside commands: bash -c 'bash -c …'
MAX_STEPS: Final = 4_000  # nodes that are walked, which bounds loops and functions
MAX_LOOP_VALUES: Final = 8
_SYSTEM_FOLDERS: Final = frozenset(
    {
        "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin",
        "/opt/homebrew/bin", "/snap/bin",
    }
)  # fmt: skip
# Variables whose value a program runs.
_CODE_VARIABLES: Final = frozenset(
    {
        "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "PAGER", "MANPAGER",
        "LESSOPEN", "LESSCLOSE", "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR",
        "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS", "PROMPT_COMMAND", "BROWSER",
        "GIT_PROXY_COMMAND", "RSYNC_RSH", "PERL5DB",
    }
)  # fmt: skip
_OPAQUE_VARIABLES: Final = frozenset(
    {
        "BASH_ENV", "ENV", "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "PERL5OPT",
        "RUBYOPT", "NODE_OPTIONS", "PYTHONSTARTUP", "ZDOTDIR", "SHELLOPTS", "BASHOPTS", "PS4",
        "GIT_EXEC_PATH", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_TEMPLATE_DIR",
    }
)  # fmt: skip
_HARMLESS_VALUES: Final = frozenset(
    {
        "", "cat", "true", ":", "less", "more", "vim", "vi", "nano", "ssh", "/bin/true",
        "/bin/cat", "less -R", "code --wait",
    }
)  # fmt: skip
# Commands after which the values of variables are not known any more.
_FORGETTING: Final = frozenset(
    {
        *("read", "mapfile", "readarray", "getopts", "let", "source", ".", "wait", "unset"),
        *("export", "declare", "typeset", "local", "readonly"),  # in quotes: no syntax of its own
    }
)
# Programs that may change a file which the command wrote before.
_CHANGING_FILES: Final = frozenset(
    {
        *("cp", "mv", "ln", "install", "tee", "sed", "patch", "tar", "unzip", "git", "curl"),
        *("wget", "python", "python3", "perl", "make"),
    }
)
# Nodes that run something, each of which must be walked.
_RUNNING_NODES: Final = frozenset({"command", "command_substitution", "process_substitution"})
_REDIRECTS: Final = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
# Signs that end a word; the grammar takes line breaks before a backslash into the next word.
_NO_WORD: Final = re.compile(r"[\s;&|<>`]|\$[({\w]")
_SIMPLE_EXPANSION: Final = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9]+|[@*#?!$-])")
_HIDDEN: Final = re.compile(r"\$[({\w@*#?!-]")  # an expansion that the grammar does not see
# Inside `${…}`: what the grammar reads otherwise than bash does, and what evaluates a value again.
_UNCLEAR_EXPANSION: Final = re.compile(r"`|[<>]\(|@[A-Za-z]\}\Z")
# A value with a sign of an expansion, which arithmetic and array subscripts evaluate once more.
_EXPANDS_AGAIN: Final = re.compile(r"`|\$(?:[({]|\Z)")
_EVALUATING_TEST: Final = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge|v|R)\s")
# Builtins that evaluate array subscripts in their words, and those that evaluate all their words.
_TAKING_SUBSCRIPTS: Final = frozenset(
    {
        *("read", "declare", "typeset", "local", "export", "readonly", "unset", "printf"),
        *("mapfile", "readarray", "test", "[", "wait", "getopts"),
    }
)
_TAKING_VALUES: Final = frozenset({"echo", "printf", "set", *_TAKING_SUBSCRIPTS})
# Words before a command that leave it to the shell to find functions and aliases.
_KEYWORDS: Final = frozenset({"time", "noglob", "nocorrect", "coproc"})
_OPERATORS: Final = frozenset(
    {
        "\n", ";", "&", ";;", "{", "}", "(", ")", "((", "))", "do", "done", "then", "else",
        "elif", "fi", "if", "while", "until", "for", "select", "in", "case", "esac", ";&",
        ";;&", "!", "|", "|&", "&&", "||", "function", "[[", "]]", "[", "]", "$", "<(", ">(",
        "$(", "`", "=",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Invocation:
    """One simple command. `words` begin with the program.

    `directory` is where it runs, relative to the start; None if that is not known. `trusted` is
    false if the program may be another than the one of its name. `reason` says why a command is
    not understood; it has no words then. A redirection to a file has the program `>`.
    """

    words: tuple[Word, ...]
    text: str
    directory: str | None = ""
    stdin: Stdin = NO_STDIN
    assignments: tuple[tuple[str, Word], ...] = ()
    trusted: bool = True
    reason: str = ""

    @property
    def program(self) -> str:
        """The name of the program without its folder; empty if it is not known."""
        return get_program_name(self.words[0].value or "") if self.words else ""


@dataclass(slots=True)
class _Scope:
    variables: dict[str, Word | None] = field(default_factory=dict)  # None: set, but not known
    positional: tuple[Word, ...] | None = None  # $1 …; None: not known
    functions: dict[str, tree_sitter.Node] = field(default_factory=dict)
    aliases: dict[str, str | None] = field(default_factory=dict)
    files: dict[str, str | None] = field(default_factory=dict)  # written in this command
    directory: str | None = ""
    path_changed: bool = False
    forgotten: bool = False  # variables may have any value

    def copy(self) -> "_Scope":
        return replace(
            self,
            variables=dict(self.variables),
            functions=dict(self.functions),
            aliases=dict(self.aliases),
            files=dict(self.files),
        )

    def merge(self, other: "_Scope") -> None:
        """Keep what both have; what differs is not known."""
        for name in self.variables.keys() | other.variables.keys():
            if self.variables.get(name) != other.variables.get(name) or (
                (name in self.variables) != (name in other.variables)
            ):
                self.variables[name] = None
        for name, text in other.files.items():
            self.files[name] = text if self.files.get(name, text) == text else None
        self.functions.update(other.functions)
        for name, alias in other.aliases.items():
            self.aliases[name] = alias if self.aliases.get(name, alias) == alias else None
        if self.directory != other.directory:
            self.directory = None
        if self.positional != other.positional:
            self.positional = None
        self.path_changed = self.path_changed or other.path_changed
        self.forgotten = self.forgotten or other.forgotten


class _GaveUpError(Exception):
    """The command is too long, too deep, or its syntax is not understood."""


@cache
def _load_language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_bash.language())


def interpret_command(text: str, *, nesting: int = 0) -> list[Invocation]:
    """Return the simple commands of a command in the order of their execution. Never raises."""
    walk = _Walk(nesting)
    try:
        walk.run_text(text, _Scope())
        walk.run_unused_functions()
        walk.check_evaluation()
        walk.check_completeness()
    except _GaveUpError as error:
        walk.add_unclear(text, str(error))
    except RecursionError:
        walk.add_unclear(text, "it is nested too deeply")
    return walk.invocations


class _Walk:
    def __init__(self, nesting: int) -> None:
        self.invocations: list[Invocation] = []
        self._nesting = nesting
        self._depth = 0
        self._steps = 0
        self._called: set[str] = set()
        self._functions: dict[str, tuple[tree_sitter.Node, _Scope]] = {}
        self._running: list[str] = []
        self._trees: list[tree_sitter.Tree] = []
        self._walked: set[int] = set()  # ids of nodes
        self._expandable = ""  # a value that would run something if it were evaluated again
        self._evaluates = False  # something evaluates values again

    def add_unclear(self, text: str, reason: str) -> None:
        self.invocations.append(Invocation((), text[:500], reason=reason))

    def run_text(self, text: str, scope: _Scope, stdin: Stdin = NO_STDIN) -> None:
        """Walk a text. Raises _GaveUpError."""
        if self._nesting > MAX_NESTING:
            raise _GaveUpError("commands are nested too deeply")
        if len(text) > MAX_CHARACTERS:
            raise _GaveUpError(f"it is longer than {MAX_CHARACTERS} characters")
        if "\0" in text:
            raise _GaveUpError("it contains a NUL character")
        text = text.replace("\r\n", "\n")
        if "\r" in text:
            raise _GaveUpError("it contains a carriage return")
        source = text.encode("utf-8", "surrogatepass")
        tree = tree_sitter.Parser(_load_language()).parse(source)
        if tree.root_node.has_error:
            raise _GaveUpError(_describe_error(tree.root_node))
        self._trees.append(tree)
        self._nesting += 1
        try:
            self._run(tree.root_node, scope, stdin)
        finally:
            self._nesting -= 1

    def run_unused_functions(self) -> None:
        """Walk functions that are defined and never called: something else may call them."""
        for name, (body, scope) in list(self._functions.items()):
            if name not in self._called:
                inner = scope.copy()
                inner.positional = None
                self._run(body, inner, NO_STDIN)

    def check_evaluation(self) -> None:
        """Refuse a value that runs something, together with arithmetic that evaluates values.

        Of `x='a[$(…)]'; ((x))` bash runs the substitution.
        """
        if self._expandable and self._evaluates:
            self.add_unclear(self._expandable, "a value may be evaluated as a command")

    def check_completeness(self) -> None:
        """Refuse a command of which a part was not walked, wherever the grammar puts it."""
        for tree in self._trees:
            for node in _iterate_nodes(tree.root_node):
                if node.type in _RUNNING_NODES and node.id not in self._walked:
                    self.add_unclear(_text(node), "a part of it is not understood")
                    return

    def _keep_value(self, text: str | None) -> None:
        """Remember a value that a builtin or a variable holds, if an expansion is in it."""
        if text is not None and _EXPANDS_AGAIN.search(text):
            self._expandable = text

    def _keep_words(self, name: str, words: Sequence[Word], stdin: Stdin) -> None:
        """Remember what a builtin takes, and whether it evaluates its words."""
        for word in words:
            self._keep_value(word.value)
        self._keep_value(stdin.text if name in ("read", "mapfile", "readarray") else None)
        values = [word.value for word in words]
        if name in ("let", "unset") or (
            name in ("test", "[") and any(_EVALUATING_TEST.match(f" {value} ") for value in values)
        ):
            self._evaluates = True
        elif name in _TAKING_SUBSCRIPTS and name not in ("test", "["):
            self._evaluates = self._evaluates or any(
                value is None or "[" in value or re.fullmatch(r"-\w*[vin]\w*", value)
                for value in values
            )

    def _run(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        self._depth += 1
        self._steps += 1
        if self._depth > MAX_DEPTH:
            raise _GaveUpError("it is nested too deeply")
        if self._steps > MAX_STEPS or len(self.invocations) > MAX_COMMANDS:
            raise _GaveUpError("it has too many commands")
        try:
            self._run_statement(node, scope, stdin)
        finally:
            self._depth -= 1

    def _run_statement(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        kind = node.type
        self._walked.add(node.id)
        if kind == "command":
            self._run_command(node, scope, stdin)
        elif kind in ("program", "do_group", "else_clause"):
            self._run_children(node, scope, stdin)
        elif kind == "compound_statement":
            if node.child_count and node.children[0].type == "((":
                self._evaluates = True
                self._scan_substitutions(node, scope)
                self._forget_assigned(node, scope)
            else:
                self._run_children(node, scope, stdin)
        elif kind == "list":
            self._run_list(node, scope, stdin)
        elif kind == "pipeline":
            self._run_pipeline(node, scope, stdin)
        elif kind == "redirected_statement":
            self._run_redirected(node, scope, stdin)
        elif kind == "subshell":
            self._run_children(node, scope.copy(), stdin)
        elif kind == "negated_command":
            self._run_children(node, scope, stdin)
        elif kind in ("variable_assignment", "variable_assignments"):
            self._assign_all(node, scope)
        elif kind == "declaration_command":
            self._run_declaration(node, scope)
        elif kind == "unset_command":
            self._scan_substitutions(node, scope)
            self._keep_words("unset", [make_word("".join(_list_literals(node)))], NO_STDIN)
            scope.forgotten = True
            self._add(scope, [Word("unset", "unset")], _text(node), stdin)
        elif kind == "if_statement":
            self._run_if(node, scope, stdin)
        elif kind in ("while_statement", "c_style_for_statement"):
            self._evaluates = self._evaluates or kind == "c_style_for_statement"
            self._run_loop(node, scope, stdin)
        elif kind == "for_statement":
            self._run_for(node, scope, stdin)
        elif kind == "case_statement":
            self._run_case(node, scope, stdin)
        elif kind == "function_definition":
            self._define_function(node, scope)
        elif kind == "test_command":
            self._scan_substitutions(node, scope)
            if _EVALUATING_TEST.search(_text(node)):
                self._evaluates = True
                self._keep_value("".join(_list_literals(node)))
            self._add(scope, [Word("test", "test")], _text(node), stdin)
        elif kind in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
            self._read_redirect(node, scope, None)
        elif kind == "comment":
            pass
        else:
            raise _GaveUpError(f"the syntax {kind} is not understood")

    def _run_children(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        for child in node.children:
            if child.is_named:
                self._run(child, scope, stdin)
            elif child.type not in _OPERATORS:
                raise _GaveUpError(f"the sign {child.type} is not understood")

    def _run_list(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        chain: list[tuple[str, tree_sitter.Node]] = []
        while node.type == "list":
            left, sign, right = node.children[0], node.children[1], node.children[-1]
            chain.append((sign.type, right))
            node = left
            if len(chain) > MAX_COMMANDS:
                raise _GaveUpError("it has too many commands")
        self._run(node, scope, stdin)
        success = scope.copy()
        only_and = True
        for operator, right in reversed(chain):
            if operator == "&&":
                self._run(right, success, stdin)
            else:
                only_and = False
                other = scope.copy()
                other.merge(success)
                self._run(right, other, stdin)
                success.merge(other)
        directory = success.directory if only_and else None
        scope.merge(success)
        if directory is not None:
            scope.directory = directory  # `cd x && …`: what follows expects that it succeeded

    def _run_pipeline(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        elements = [child for child in node.children if child.is_named and child.type != "comment"]
        for element in elements:
            copy = scope.copy()
            first = len(self.invocations)
            self._run(element, copy, stdin)
            # In zsh the last element runs in this shell, so its variables may be set.
            scope.merge(replace(copy, directory=scope.directory, positional=scope.positional))
            stdin = Stdin(True, self._find_output(first))

    def _find_output(self, first: int) -> str | None:
        """Return what the commands since `first` write, if that is known."""
        if len(self.invocations) != first + 1:
            return None
        invocation = self.invocations[first]
        return find_output(invocation) if invocation.trusted else None

    def _run_redirected(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        body = node.child_by_field_name("body")
        after: list[tree_sitter.Node] = []
        extra: list[Word] = []
        targets: list[Word] = []
        pipes: list[tree_sitter.Node] = []
        # The grammar gives here strings no field name.
        for redirect in (child for child in node.children if child.type in _REDIRECTS):
            read = self._read_redirect(redirect, scope, body)
            stdin = read.stdin or stdin
            extra += read.words
            targets += read.targets
            after += read.after
            pipes += read.pipes
        first = len(self.invocations)
        if body is not None:
            if extra and body.type != "command":
                raise _GaveUpError("words after a redirection are not understood")
            if body.type != "command":
                self._keep_value(stdin.text)
            if body.type == "command":
                self._depth += 1
                self._run_command(body, scope, stdin, extra)
                self._depth -= 1
            else:
                self._run(body, scope, stdin)
        elif extra:
            raise _GaveUpError("words after a redirection are not understood")
        output = self._find_output(first)
        self._write_files(targets, scope, output, _text(node))
        for pipe in pipes:  # the rest of a pipeline whose first command has a here document
            self._run(pipe, scope, Stdin(True, None if targets else output))
        for statement in after:
            self._run(statement, scope, NO_STDIN)

    def _write_files(
        self, targets: Sequence[Word], scope: _Scope, output: str | None, text: str
    ) -> None:
        for target in targets:
            path = target.value
            if path is not None and path.startswith(("/dev/tcp/", "/dev/udp/")):
                self._append(Invocation((Word("/dev/tcp", "/dev/tcp"), target), text))
            elif path in ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"):
                continue
            else:
                if path is None and not target.prefix:
                    self._append(Invocation((Word(">", ">"), target), text, scope.directory))
                    continue
                if path is not None:
                    key = self._find_file(path, scope)
                    scope.files[key] = output if key not in scope.files else None
                self._append(Invocation((Word(">", ">"), target), text, scope.directory))

    def _find_file(self, path: str, scope: _Scope) -> str:
        return posixpath.normpath(posixpath.join(scope.directory or "", path))

    def _read_redirect(
        self, node: tree_sitter.Node, scope: _Scope, body: tree_sitter.Node | None
    ) -> "_Redirect":
        read = _Redirect()
        if node.type == "herestring_redirect":
            words = self._expand_all(node.children[1:], scope)
            text = words[0].value if len(words) == 1 else None
            self._keep_value(text)
            read.stdin = Stdin(True, None if text is None else text + "\n")
        elif node.type == "heredoc_redirect":
            self._read_heredoc(node, scope, read)
        elif node.type == "file_redirect":
            sign = next(child.type for child in node.children if not child.is_named)
            if _has_line_break(node):
                raise _GaveUpError("a redirection to the next line is not understood")
            words = self._expand_all(node.children_by_field_name("destination"), scope)
            read.words = words[1:]  # the grammar takes `>&2 push` as two destinations
            if sign.startswith("<") and sign != "<&" and sign != "<&-":
                text = None
                if words and words[0].value is not None:
                    text = scope.files.get(self._find_file(words[0].value, scope))
                    if words[0].value.startswith(("/dev/tcp/", "/dev/udp/")):
                        read.targets = words[:1]
                read.stdin = Stdin(True, text)
            elif sign in ("<&", "<&-", ">&-"):
                read.stdin = Stdin(True) if sign == "<&" else None
                if sign != "<&" or (words and words[0].value is None):
                    read.words = words
                    if sign == "<&":
                        read.words = words[1:]
            elif sign == ">&":
                target = words[0].value if words else None
                if target is None or not re.fullmatch(r"\d+-?|-", target):
                    read.targets = words[:1]
            elif sign in (">", ">>", ">|", "&>", "&>>"):
                read.targets = words[:1]
            else:
                raise _GaveUpError(f"the redirection {sign} is not understood")
        else:
            raise _GaveUpError(f"the redirection {node.type} is not understood")
        return read

    def _read_heredoc(self, node: tree_sitter.Node, scope: _Scope, read: "_Redirect") -> None:
        self._check_heredoc(node)
        literal = False
        strips = False
        text: str | None = ""
        for child in node.children:
            if child.type == "heredoc_start":
                literal = any(sign in _text(child) for sign in "'\"\\")
            elif child.type == "<<-":
                strips = True
            elif child.type == "heredoc_body":
                text = _text(child) if literal else self._expand_heredoc(child, scope)
            elif child.type in ("heredoc_end", "<<", "file_descriptor", "&&", "||", "\n", ";", "&"):
                pass
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                inner = self._read_redirect(child, scope, None)
                read.targets += inner.targets
                read.words += inner.words
                if inner.stdin is not None:
                    read.stdin = Stdin(True)
            elif child.type == "pipeline":
                read.pipes.append(child)
            elif child.is_named and child.type in (
                *("command", "list", "redirected_statement", "compound_statement", "subshell"),
                *("if_statement", "while_statement", "for_statement", "test_command"),
                *("negated_command", "variable_assignment", "declaration_command"),
            ):
                read.after.append(child)
            elif child.is_named:  # an argument that follows the here document
                read.words += self._expand(child, scope)
            else:
                raise _GaveUpError(f"the sign {child.type} in a here document is not understood")
        if text is not None and strips:
            text = "\n".join(line.lstrip("\t") for line in text.split("\n"))
        if read.stdin is None:
            read.stdin = Stdin(True, text)

    def _check_heredoc(self, node: tree_sitter.Node) -> None:
        """Refuse a here document whose end the grammar sees elsewhere than a shell does.

        The grammar also ends it at a line that only begins with its delimiter, or is indented.
        """
        parts = {child.type: child for child in node.children}
        start, body, end = (
            parts.get(kind) for kind in ("heredoc_start", "heredoc_body", "heredoc_end")
        )
        if start is None or end is None:
            raise _GaveUpError("a here document is not understood")
        pieces = re.sub(r"['\"]", "", _text(start)).replace("\\", "")
        root = node
        while root.parent is not None:
            root = root.parent
        source, offset = root.text or b"", root.start_byte
        last, after = end.start_byte - offset, start.end_byte - offset
        line = source[source.rfind(b"\n", 0, last) + 1 :].partition(b"\n")[0]
        first = source.find(b"\n", after) + 1
        lines = source[first:last].split(b"\n")[:-1]
        strips = "<<-" in parts
        if strips:
            line, lines = line.lstrip(b"\t"), [item.lstrip(b"\t") for item in lines]
        delimiter = pieces.encode("utf-8", "surrogatepass")
        if (
            line != delimiter
            or delimiter in lines
            or any(item.lstrip(b"\t") == delimiter for item in lines if strips)
            or (body is not None and body.start_byte - offset < first)
            or b"\\\n" in source[after:first]
        ):
            raise _GaveUpError("the end of a here document is not certain")

    def _expand_heredoc(self, node: tree_sitter.Node, scope: _Scope) -> str | None:
        source = _text(node)
        text: str | None = ""
        for code in re.findall(r"(?<!\\)`((?:[^`\\]|\\.)*)`", source, re.DOTALL):
            # The grammar does not see backquotes in here documents.
            command = re.sub(r"\\([$`\\])", r"\1", code)
            self._run_inner(
                Inner(text=Word(command, source[:200]), same_shell=True),
                scope.copy(),
                NO_STDIN,
                command,
            )
            text = None
        for piece in self._list_quoted(node, scope):
            text = None if text is None or piece.text is None else text + piece.text
        return text

    def _run_if(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        before = scope.copy()
        inner = scope.copy()
        for child in node.children:
            if child.type in ("elif_clause", "else_clause"):
                other = before.copy()
                for item in child.children:
                    if item.is_named:
                        self._run(item, other, stdin)
                scope.merge(other)
            elif child.is_named:
                self._run(child, inner, stdin)
        scope.merge(inner)

    def _run_loop(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        self._forget_assigned(node, scope)
        inner = scope.copy()
        first = len(self.invocations)
        for child in node.children:
            if (
                child.type
                in (
                    "binary_expression",
                    "unary_expression",
                    "postfix_expression",
                    "variable_assignment",
                    "parenthesized_expression",
                    "word",
                    "number",
                )
                and node.type == "c_style_for_statement"
            ):
                self._scan_substitutions(child, inner)
            elif child.is_named:
                self._run(child, inner, Stdin(True) if stdin.exists else stdin)
        self._leave_loop(first, scope, inner)

    def _leave_loop(self, first: int, scope: _Scope, inner: _Scope) -> None:
        if inner.directory != scope.directory:  # the second round begins elsewhere
            self.invocations[first:] = [
                replace(invocation, directory=None) for invocation in self.invocations[first:]
            ]
        scope.merge(inner)

    def _run_for(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        name_node = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        if name_node is None or body is None:
            raise _GaveUpError("a loop is not understood")
        name = _text(name_node)
        values = self._expand_all(node.children_by_field_name("value"), scope)
        for item in values:
            self._keep_value(item.value)
        self._forget_assigned(body, scope)
        is_select = bool(node.children) and node.children[0].type == "select"
        single = [value for value in values if not value.splits]
        first = len(self.invocations)
        inner = scope.copy()
        if not values or len(single) < len(values) or len(values) > MAX_LOOP_VALUES or is_select:
            prefix = ""
            if values and all(value.value is not None or value.prefix for value in values):
                prefix = posixpath.commonprefix(
                    [value.prefix if value.value is None else value.value for value in values]
                )
            inner.variables[name] = Word(None, f"${name}", prefix)
            self._run(body, inner, stdin)
        else:
            for value in single:
                inner.variables[name] = value
                self._run(body, inner, stdin)
        self._leave_loop(first, scope, inner)
        scope.variables[name] = None

    def _run_case(self, node: tree_sitter.Node, scope: _Scope, stdin: Stdin) -> None:
        value = node.child_by_field_name("value")
        if value is not None:
            self._expand(value, scope)
        before = scope.copy()
        for item in node.children:
            if item.type != "case_item":
                continue
            inner = before.copy()
            values = {child.id for child in item.children_by_field_name("value")}
            for child in item.children:
                if child.is_named and child.id not in values:
                    self._run(child, inner, stdin)
                elif child.id in values:
                    self._scan_substitutions(child, inner)
            scope.merge(inner)

    def _define_function(self, node: tree_sitter.Node, scope: _Scope) -> None:
        name_node, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name_node is None or body is None:
            raise _GaveUpError("a function is not understood")
        if any(child.type in _REDIRECTS for child in node.children):
            raise _GaveUpError("the redirection of a function is not understood")
        name = _text(name_node)
        scope.functions[name] = body
        self._functions[name] = (body, scope)

    def _forget_assigned(self, node: tree_sitter.Node, scope: _Scope) -> None:
        """Variables that a loop sets may have any value when it begins again."""
        stack = [node]
        while stack:
            child = stack.pop()
            if child.type in (
                "variable_assignment",
                "postfix_expression",
                "binary_expression",
                "for_statement",
            ):
                name = child.child_by_field_name("name") or child.child_by_field_name("variable")
                if name is not None:
                    scope.variables[_text(name)] = None
                elif child.type != "variable_assignment":
                    for item in child.children:
                        if item.type in ("variable_name", "word"):
                            scope.variables[_text(item)] = None
            stack += child.children

    def _assign_all(self, node: tree_sitter.Node, scope: _Scope) -> None:
        nodes = [node] if node.type == "variable_assignment" else node.children
        for child in nodes:
            if child.type == "variable_assignment":
                name, value = self._read_assignment(child, scope)
                self._set_variable(scope, name, value)
                self._check_variable(name, value, scope, _text(child))

    def _read_assignment(self, node: tree_sitter.Node, scope: _Scope) -> tuple[str, Word | None]:
        name_node = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        name = "" if name_node is None else _text(name_node)
        if value is not None:
            self._keep_value("".join(_list_literals(value)))
        if name_node is not None and name_node.type == "subscript":
            self._evaluates = True
            self._scan_substitutions(name_node, scope)
            return name.partition("[")[0], None
        if value is None:
            return name, Word("", "")
        if value.type == "array" or any(child.type == "+=" for child in node.children):
            self._scan_substitutions(value, scope)
            return name, None
        pieces = self._list_pieces(value, scope)
        text = ""
        for piece in pieces:
            if piece.text is None:
                return name, Word(None, _text(value)[:200], text)
            text += piece.text
        self._keep_value(text)
        return name, Word(text, text)

    def _set_variable(self, scope: _Scope, name: str, value: Word | None) -> None:
        scope.variables[name] = value
        if name == "PATH":
            scope.path_changed = True
        if name in ("IFS", "CDPATH"):
            scope.forgotten = scope.forgotten or name == "IFS"

    def _check_variable(self, name: str, value: Word | None, scope: _Scope, text: str) -> None:
        """Add what a program runs because a variable says so."""
        if name in _OPAQUE_VARIABLES:
            self._append(Invocation((Word(f"{name}=", name),), text[:500], scope.directory))
        elif name in _CODE_VARIABLES or name.startswith("GIT_CONFIG_VALUE"):
            if value is None or value.value is None:
                self.add_unclear(text, f"the value of {name} is only known when it runs")
            elif value.value not in _HARMLESS_VALUES:
                self._run_inner(Inner(text=value), scope, NO_STDIN, text)

    def _run_declaration(self, node: tree_sitter.Node, scope: _Scope) -> None:
        words: list[Word] = []
        for child in node.children:
            if child.type == "variable_assignment":
                self._assign_all(child, scope)
            elif child.is_named:
                if child.type == "variable_name":
                    words.append(Word(_text(child), _text(child)))
                else:
                    words += self._expand(child, scope)
            else:
                words.append(Word(child.type, child.type))
        if any(
            word.value is None or (word.value.startswith("-") and set(word.value) & set("nilu"))
            for word in words[1:]
        ):
            scope.forgotten = True
        self._keep_words(words[0].value or "", words[1:], NO_STDIN)
        self._add(scope, words[:1], _text(node), NO_STDIN)

    def _run_command(
        self,
        node: tree_sitter.Node,
        scope: _Scope,
        stdin: Stdin,
        extra: Sequence[Word] = (),
    ) -> None:
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        targets: list[Word] = []
        self._walked.add(node.id)
        _check_gaps(node)
        for child in node.children:
            if child.type == "variable_assignment":
                name, value = self._read_assignment(child, scope)
                assignments.append((name, value or Word(None, _text(child))))
            elif child.type == "command_name":
                for item in child.children:
                    words += self._expand(item, scope)
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                read = self._read_redirect(child, scope, node)
                if read.after or read.pipes:
                    raise _GaveUpError("a here document before a command is not understood")
                stdin = read.stdin or stdin
                words += read.words
                targets += read.targets
            elif child.is_named:
                words += self._expand(child, scope)
            elif child.type in ("==", "=~", "=", "!="):
                words.append(Word(child.type, child.type))
            elif child.type == "$":
                words.append(Word("$", "$"))
            else:
                raise _GaveUpError(f"the sign {child.type} in a command is not understood")
        words += extra
        first = len(self.invocations)
        self._run_words(words, scope, stdin, assignments, _text(node))
        self._write_files(targets, scope, self._find_output(first), _text(node))

    def _run_words(
        self,
        words: Sequence[Word],
        scope: _Scope,
        stdin: Stdin,
        assignments: Sequence[tuple[str, Word]],
        text: str,
        *,
        only_programs: bool = False,
    ) -> None:
        """Run words as a command: a function, an alias, another command inside, or a program."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _GaveUpError("it has too many commands")
        if not words:
            for name, value in assignments:
                self._set_variable(scope, name, value)
            return
        for name, value in assignments:
            self._check_variable(name, value, scope, text)
        program = words[0].value
        if program is None:
            self.add_unclear(text, f"the program {words[0].text[:80]} is only known when it runs")
            return
        if program in scope.aliases and not only_programs:
            alias = scope.aliases[program]
            if alias is None:
                self.add_unclear(text, f"the alias {program[:40]} is only known when it runs")
            else:
                narrowed = scope.copy()
                del narrowed.aliases[program]  # an alias does not call itself
                parts = [
                    alias,
                    *(
                        word.text if word.value is None else _quote(word.value)
                        for word in words[1:]
                    ),
                ]
                self._run_inner(
                    Inner(text=Word(" ".join(parts), text), same_shell=True), narrowed, stdin, text
                )
                del scope.aliases[program]
                self._run_words(words, scope, stdin, assignments, text)
                scope.aliases[program] = alias
                return
        if program in scope.functions and not only_programs:
            self._call_function(program, words, scope, stdin, text)
            return
        name = get_program_name(program)
        if name in OTHER_SHELLS and not _is_version(words):
            self.add_unclear(text, f"the language of {name} is not understood")
            return
        if name in ("{", "}", "", "then", "do", "done", "fi", "esac"):
            self.add_unclear(text, "its syntax is not understood")
            return
        try:
            inners = unwrap_words(name, words[1:])
        except UnclearError as error:
            self.add_unclear(text, str(error))
            return
        if inners is not None:
            if not inners:
                self._add(scope, words, text, stdin, assignments)
            for inner in inners:
                self._run_inner(inner, scope, stdin, text, only_programs=name not in _KEYWORDS)
            if name in ("find", "gfind"):
                self._add(scope, words, text, stdin, assignments)
            return
        if name in ("source", "."):
            self._source(words, scope, stdin, text)
            return
        self._run_builtin(name, words, scope, stdin, text)
        key = self._find_file(program, scope)
        if "/" in program and key in scope.files:
            self._run_file(key, program, words[1:], scope, stdin, text)
            return
        self._add(scope, words, text, stdin, assignments)

    def _add(
        self,
        scope: _Scope,
        words: Sequence[Word],
        text: str,
        stdin: Stdin,
        assignments: Sequence[tuple[str, Word]] = (),
    ) -> None:
        program = words[0].value or ""
        folder = program.rpartition("/")[0]
        trusted = not scope.path_changed and (not folder or folder in _SYSTEM_FOLDERS)
        trusted = trusted and all(name != "PATH" for name, _ in assignments)
        self._append(
            Invocation(
                tuple(words), text[:2_000], scope.directory, stdin, tuple(assignments), trusted
            )
        )

    def _append(self, invocation: Invocation) -> None:
        if len(self.invocations) > MAX_COMMANDS:
            raise _GaveUpError("it has too many commands")
        self.invocations.append(invocation)

    def _run_inner(
        self,
        inner: Inner,
        scope: _Scope,
        stdin: Stdin,
        text: str,
        *,
        only_programs: bool = False,
    ) -> None:
        for value in (*(word for _, word in inner.assignments), *inner.arguments):
            self._keep_value(value.value)
        if inner.text is None:
            target = scope
            if inner.directory is not None:
                target = scope.copy()
                target.directory = _join_directory(scope.directory, inner.directory)
            self._run_words(
                inner.words, target, stdin, inner.assignments, text, only_programs=only_programs
            )
            return
        code = inner.text.value
        if code is None:
            self.add_unclear(text, "the command inside is only known when it runs")
            return
        if inner.same_shell:
            target = scope
        else:
            # A new shell sees only what was exported, so no value is certain there.
            target = _Scope(
                directory=scope.directory, path_changed=scope.path_changed, files=scope.files
            )
            target.positional = inner.arguments[1:]
        try:
            self.run_text(code, target, stdin)
        except _GaveUpError as error:
            self.add_unclear(code, str(error))

    def _call_function(
        self, name: str, words: Sequence[Word], scope: _Scope, stdin: Stdin, text: str
    ) -> None:
        self._called.add(name)
        if self._running.count(name) > 1 or len(self._running) > MAX_NESTING:
            return  # it calls itself: its commands are listed already
        self._running.append(name)
        outer = scope.positional
        scope.positional = tuple(words[1:])
        for word in words[1:]:
            self._keep_value(word.value)
        body = scope.functions[name]
        self._run(body, scope, stdin)
        scope.positional = outer
        self._running.pop()

    def _source(self, words: Sequence[Word], scope: _Scope, stdin: Stdin, text: str) -> None:
        path = words[1].value if len(words) > 1 else None
        if path in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "-"):
            if not stdin.exists:
                self.add_unclear(text, "a shell reads commands that are not shown")
            elif stdin.text is None:
                self.add_unclear(text, "a shell reads commands that are only known when it runs")
            else:
                self._run_inner(Inner(text=Word(stdin.text, text)), scope, NO_STDIN, text)
            return
        if path is None:
            self.add_unclear(text, "the file that a shell runs is only known when it runs")
            return
        key = self._find_file(path, scope)
        if key in scope.files:
            self._run_file(key, path, words[2:], scope, stdin, text)
        else:
            self._add(scope, words, text, stdin)
        scope.forgotten = True

    def _run_file(
        self,
        key: str,
        path: str,
        arguments: Sequence[Word],
        scope: _Scope,
        stdin: Stdin,
        text: str,
    ) -> None:
        code = scope.files[key]
        first_line = (code or "").partition("\n")[0]
        if code is None:
            self.add_unclear(text, f"the file {path[:80]} is written here, with unknown content")
        elif first_line.startswith("#!") and not re.search(r"\b(?:ba|z|da|k|a)?sh\b", first_line):
            self._add(scope, [Word(path, path), *arguments], text, stdin)
        else:
            word = Word(code, text)
            self._run_inner(
                Inner(text=word, arguments=(Word(path, path), *arguments)), scope, stdin, text
            )

    def _run_builtin(
        self, name: str, words: Sequence[Word], scope: _Scope, stdin: Stdin, text: str
    ) -> None:
        if name in _TAKING_VALUES or name == "let":
            self._keep_words(name, words[1:], stdin)
        if name in ("cd", "pushd"):
            scope.directory = _change_directory(words[1:], scope.directory)
        elif name == "popd":
            scope.directory = None
        elif name == "alias":
            for word in words[1:]:
                if word.value is None:
                    self.add_unclear(text, "an alias is only known when it runs")
                elif "=" in word.value:
                    alias, _, value = word.value.partition("=")
                    scope.aliases[alias] = value
        elif name == "set" or name == "shift":
            scope.positional = None
        elif name in _FORGETTING or (
            name == "printf" and len(words) > 1 and (words[1].value or "-v").startswith("-v")
        ):
            scope.forgotten = True
        elif name in ("enable", "hash"):
            scope.path_changed = True
        elif name in _CHANGING_FILES:
            for word in words[1:]:
                if word.value is not None:
                    key = self._find_file(word.value, scope)
                    if key in scope.files:
                        scope.files[key] = None

    def _expand_all(self, nodes: Sequence[tree_sitter.Node], scope: _Scope) -> list[Word]:
        return [word for node in nodes if node.is_named for word in self._expand(node, scope)]

    def _expand(self, node: tree_sitter.Node, scope: _Scope) -> list[Word]:
        if _text(node).strip('"') in ("$@", "$*", "${@}", "${*}") and scope.positional is not None:
            return list(scope.positional)
        try:
            return build_words(self._list_pieces(node, scope), _text(node))
        except TooManyWordsError:
            return [Word(None, _text(node)[:500], splits=True)]

    def _list_pieces(self, node: tree_sitter.Node, scope: _Scope) -> list[Piece]:
        self._depth += 1
        self._steps += 1
        if self._depth > MAX_DEPTH:
            raise _GaveUpError("it is nested too deeply")
        if self._steps > MAX_STEPS * 4:
            raise _GaveUpError("it has too many words")
        try:
            return self._read_pieces(node, scope)
        finally:
            self._depth -= 1

    def _read_pieces(self, node: tree_sitter.Node, scope: _Scope) -> list[Piece]:
        kind = node.type
        text = _text(node)
        if kind in (
            "word",
            "number",
            "test_operator",
            "regex",
            "extglob_pattern",
            "variable_name",
            "special_variable_name",
            "file_descriptor",
            "=",
        ):
            if node.named_child_count:
                self._scan_substitutions(node, scope)
                return [Piece(None, source=text)]
            if kind == "word" and _NO_WORD.search(_ESCAPED.sub("", text)):
                raise _GaveUpError("a word is not understood")
            return split_escapes(text)
        if kind == "raw_string":
            return [Piece(text[1:-1], quoted=True)]
        if kind == "ansi_c_string":
            return [Piece(decode_ansi(text[2:-1]), quoted=True)]
        if kind == "string":
            return self._list_quoted(node, scope, 1) or [Piece("", quoted=True)]
        if kind == "translated_string":
            return [
                piece
                for child in node.children
                if child.is_named
                for piece in self._list_pieces(child, scope)
            ]
        if kind in ("concatenation", "command_name"):
            pieces: list[Piece] = []
            end = node.start_byte
            for child in node.children:
                if child.start_byte != end:
                    raise _GaveUpError("a word is not understood")
                end = child.end_byte
                if child.is_named:
                    pieces += self._list_pieces(child, scope)
                else:
                    pieces.append(Piece(_text(child)))
            return pieces
        if kind in ("simple_expansion", "expansion"):
            return [self._expand_variable(node, scope, quoted=False)]
        if kind == "command_substitution":
            return [self._substitute(node, scope, quoted=False)]
        if kind == "process_substitution":
            self._scan_substitutions(node, scope)
            return [Piece(None, quoted=True, source=text)]
        if kind in ("arithmetic_expansion", "brace_expression"):
            self._evaluates = self._evaluates or kind == "arithmetic_expansion"
            self._scan_substitutions(node, scope)
            if kind == "brace_expression":
                return [Piece(text)]
            return [Piece(None, quoted=True, source=text)]
        raise _GaveUpError(f"the syntax {kind} in a word is not understood")

    def _list_quoted(self, node: tree_sitter.Node, scope: _Scope, margin: int = 0) -> list[Piece]:
        """Return the pieces between double quotes; the text between children is literal."""
        source = node.text or b""
        at, pieces = margin, []
        for child in node.children:
            if child.type not in (
                "simple_expansion",
                "expansion",
                "command_substitution",
                "arithmetic_expansion",
                "process_substitution",
            ):
                continue
            start = child.start_byte - node.start_byte
            self._check_literal(source[at:start], node)
            if start > at:
                pieces.append(Piece(unescape_quoted(_decode(source[at:start])), quoted=True))
            at = child.end_byte - node.start_byte
            if child.type in ("simple_expansion", "expansion"):
                pieces.append(self._expand_variable(child, scope, quoted=True))
            elif child.type == "command_substitution":
                pieces.append(self._substitute(child, scope, quoted=True))
            else:
                self._evaluates = True
                self._scan_substitutions(child, scope)
                pieces.append(Piece(None, quoted=True, source=_text(child)))
        end = len(source) - margin
        self._check_literal(source[at:end], node)
        if end > at:
            pieces.append(Piece(unescape_quoted(_decode(source[at:end])), quoted=True))
        return pieces

    def _check_literal(self, source: bytes, node: tree_sitter.Node) -> None:
        """Refuse text between double quotes in which the grammar missed an expansion."""
        text = _ESCAPED.sub("", _decode(source))
        if _HIDDEN.search(text) or ("`" in text and node.type == "string"):
            raise _GaveUpError("an expansion in a text is not understood")

    def _expand_variable(self, node: tree_sitter.Node, scope: _Scope, *, quoted: bool) -> Piece:
        text = _text(node)
        if node.type == "simple_expansion" and not _SIMPLE_EXPANSION.fullmatch(text):
            raise _GaveUpError("an expansion is not understood")
        match = re.fullmatch(r"\$(?:([A-Za-z_]\w*|[0-9])|\{([A-Za-z_]\w*|[0-9]+)\})", text)
        unknown = Piece(None, quoted, source=text)
        if match is None:
            self._check_expansion(node)
            self._scan_substitutions(node, scope)
            if text in ("$?", "$$", "$#", "$!", "${#}"):
                return Piece(None, quoted=True, source=text)
            return unknown
        name = match[1] or match[2]
        if name.isdigit():
            if scope.positional is None or name == "0":
                return unknown
            at = int(name) - 1
            value: Word | None = (
                scope.positional[at] if at < len(scope.positional) else Word("", "")
            )
        elif scope.forgotten or name not in scope.variables:
            return unknown
        else:
            value = scope.variables[name]
        if value is None or value.value is None:
            return unknown if value is None else unknown._replace(prefix=value.prefix)
        if "*" in value.value or "?" in value.value or "[" in value.value:
            return Piece(value.value, quoted=True) if quoted else unknown
        return Piece(value.value, quoted, from_variable=True)

    def _check_expansion(self, node: tree_sitter.Node) -> None:
        """Refuse `${…}` in which bash may run what the grammar takes for text.

        The grammar sees no backquotes there, and between double quotes bash gives a single quote no
        meaning.
        """
        text = _text(node)
        literals = _list_literals(node)
        if _UNCLEAR_EXPANSION.search(text) or any("$" in literal for literal in literals):
            raise _GaveUpError("an expansion is not understood")
        if text.startswith("${!") or "[" in text or re.match(r"\$\{\w+:[^-+=?]", text):
            self._evaluates = True

    def _substitute(self, node: tree_sitter.Node, scope: _Scope, *, quoted: bool) -> Piece:
        """Walk `$(…)`, and return what it writes if that is known."""
        first = len(self.invocations)
        text = _text(node)
        if text.startswith("`") and "\\" in text:
            # Inside backquotes a backslash has another meaning; the grammar does not follow it.
            self._walked.update(item.id for item in _iterate_nodes(node))
            self._run_inner(
                Inner(text=Word(re.sub(r"\\([$`\\])", r"\1", text[1:-1]), text), same_shell=True),
                scope.copy(),
                NO_STDIN,
                text,
            )
        else:
            self._scan_substitutions(node, scope)
        output = self._find_output(first)
        if output is None:
            return Piece(None, quoted, source=text)
        return Piece(output.rstrip("\n"), quoted, from_variable=True)

    def _scan_substitutions(self, node: tree_sitter.Node, scope: _Scope) -> None:
        """Walk the commands inside a word or an expression whose own value is not needed."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _GaveUpError("it is nested too deeply")
        if node.type in ("command_substitution", "process_substitution"):
            self._walked.add(node.id)
            inner = scope.copy()
            for child in node.children:
                if child.is_named:
                    self._run(child, inner, NO_STDIN)
        else:
            for child in node.children:
                if child.type == "string" or child.child_count:
                    self._scan_substitutions(child, scope)
            if node.type == "arithmetic_expansion":
                self._evaluates = True
            elif node.type == "expansion":
                self._check_expansion(node)
        self._depth -= 1


@dataclass(slots=True)
class _Redirect:
    stdin: Stdin | None = None
    words: list[Word] = field(default_factory=list)
    targets: list[Word] = field(default_factory=list)
    after: list[tree_sitter.Node] = field(default_factory=list)
    pipes: list[tree_sitter.Node] = field(default_factory=list)


def _iterate_nodes(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    stack = [node]
    while stack:
        child = stack.pop()
        yield child
        stack += child.children


def _list_literals(node: tree_sitter.Node) -> list[str]:
    """Return the texts between single quotes inside a node, and its escaped words."""
    literals: list[str] = []
    stack = [node]
    while stack:
        child = stack.pop()
        if child.type == "raw_string":
            literals.append(_text(child)[1:-1])
        elif child.type == "ansi_c_string":
            literals.append(decode_ansi(_text(child)[2:-1]))
        elif child.type == "word":
            literals += [pair[1] for pair in _ESCAPED.findall(_text(child))]
        elif child.type not in ("command_substitution", "process_substitution"):
            stack += child.children
    return literals


def _has_line_break(node: tree_sitter.Node) -> bool:
    """True if the words of a redirection are on several lines, which no shell accepts."""
    source = node.text or b""
    end = 0
    for child in node.children:
        if b"\n" in source[end : child.start_byte - node.start_byte].replace(b"\\\n", b""):
            return True
        end = child.end_byte - node.start_byte
    return False


def _check_gaps(node: tree_sitter.Node) -> None:
    """Refuse two words without a blank between, which a shell reads as one."""
    source = node.text or b""
    end = None
    for child in node.children:
        if end is not None and child.type not in _REDIRECTS:
            gap = source[end - node.start_byte : child.start_byte - node.start_byte]
            if b"\n" in gap.replace(b"\\\n", b""):
                raise _GaveUpError("a command over several lines is not understood")
            if not gap.replace(b"\\\n", b""):
                raise _GaveUpError("where a word ends is not certain")
        end = None if child.type in _REDIRECTS else child.end_byte


def find_output(invocation: Invocation) -> str | None:
    """Return what echo, printf or cat writes to its standard output, if that is known."""
    values = [word.value for word in invocation.words[1:]]
    if any(value is None for value in values):
        return None
    texts = [value for value in values if value is not None]
    name = invocation.program
    if name == "cat" and texts in ([], ["-"]) and invocation.stdin.exists:
        return invocation.stdin.text
    if name == "echo":
        escapes = False
        while texts and re.fullmatch(r"-[neE]+", texts[0]):
            escapes = escapes or "e" in texts[0]
            texts.pop(0)
        text = " ".join(texts)
        return (
            (decode_ansi(text) if escapes else text) + "\n" if "\\" not in text or escapes else None
        )
    if name == "printf" and texts:
        if texts[0] == "--":
            texts.pop(0)
        if texts and texts[0] in ("%s", "%s\\n", "%b", "%b\\n") and len(texts) == 2:
            text = texts[1] if texts[0].startswith("%s") else decode_ansi(texts[1])
            return text + ("\n" if texts[0].endswith("\\n") else "")
        if len(texts) == 1 and "%" not in texts[0]:
            return decode_ansi(texts[0])
    return None


def _change_directory(words: Sequence[Word], directory: str | None) -> str | None:
    listed = [word for word in words if word.value not in ("-P", "-L", "-e", "--")]
    if len(listed) != 1:
        return None
    return _join_directory(directory, listed[0])


def _join_directory(directory: str | None, word: Word) -> str | None:
    path = word.value
    if path is None or path == "-" or path.startswith("~"):
        return None if path is None or path == "-" else path
    if path.startswith("/"):
        return posixpath.normpath(path)
    return None if directory is None else posixpath.normpath(posixpath.join(directory, path))


def _is_version(words: Sequence[Word]) -> bool:
    return len(words) == 2 and words[1].value in ("--version", "-v", "--help")


def _quote(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _text(node: tree_sitter.Node) -> str:
    return _decode(node.text or b"")


def _decode(source: bytes) -> str:
    return source.decode("utf-8", "surrogatepass")


def _describe_error(root: tree_sitter.Node) -> str:
    for node in _iterate_errors(root):
        return f"line {node.start_point.row + 1} cannot be parsed"
    return "it cannot be parsed"


def _iterate_errors(root: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.is_error or node.is_missing:
            yield node
        if node.has_error:
            stack += reversed(node.children)
