"""What the text of a shell call of Gemini CLI says about its end. Pure.

The text names an exit code or a signal behind the output, and only if there was one to name. The
same text is in the hook after the call and in the transcript.
"""

import re
from typing import Final

MAX_END_CHARACTERS: Final = 4_000  # of a text, in which its last lines are sought
_HOOK_CONTEXT: Final = "\n\n<hook_context>"
# The lines behind the output. A command may print the same words, so only the end counts.
_END: Final = re.compile(
    r"(?:^|\n)(?P<lines>(?:(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): [^\n]*"
    r"(?:\n|$))+)(?:</untrusted_context>\s*)?(?:\[System\] [^\n]*)?$"
)
_EXIT: Final = re.compile(r"^Exit Code: (\d{1,3}|\(none\))\s*$", re.MULTILINE)
_SIGNAL: Final = re.compile(r"^Signal: (?!\(none\))\S+", re.MULTILINE)
_OPENING: Final = re.compile(r"\s*<untrusted_context>\s*")
_NOT_STARTED: Final = (
    "Command was cancelled by user before it could start",
    "Command injection detected",
)


def read_shell_end(text: str) -> tuple[str, str]:
    """Return the outcome of a shell call, or an empty one and the reason of its failure."""
    start = _OPENING.sub("", text[:500], count=1).lstrip()
    if start.startswith(_NOT_STARTED):
        return "", "rejected"
    if start.startswith("Command was automatically cancelled because it exceeded the timeout"):
        return "", "timeout"
    if start.startswith("Command was cancelled"):
        return "", "error"
    if start.startswith("Command moved to background"):
        return "unknown", ""
    if text.endswith("</hook_context>"):
        text = text.rpartition(_HOOK_CONTEXT)[0]
    match = _END.search(text.rstrip()[-MAX_END_CHARACTERS:])
    lines = match["lines"] if match else ""
    if _SIGNAL.search(lines):
        return "", "error"
    code = _EXIT.search(lines)
    if code is None or code[1] == "0":
        return "ok", ""
    return ("", "error") if code[1] == "(none)" else ("error", "")
