"""How the text of a Stan program is laid out: blocks, comments, wrapped arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import indent, wrap

WIDTH = 80
TIED = "\0"  # stands for a blank at which no line is broken
INDEX = re.compile(r"(?<=\w)\[(?:[^][,]{,24}|[\d :,]{,24})\]")


def program_text(blocks: Iterable[tuple[str, str]]) -> str:
    """Write blocks, given as name and body, one after the other."""
    return "".join(f"{name} {{\n{_fitted(indent(body, '  '))}}}\n" for name, body in blocks)


def declarations(lines: list[tuple[str, str]]) -> str:
    """Write declarations with trailing comments, on a line of their own if they do not fit.

    A comment without a declaration is a heading.
    """
    text = ""
    for declaration, words in lines:
        remark = " ".join(words.split())  # a line break must not end the comment
        if not declaration:
            above = "\n" if text else ""
            text += above + "\n".join(comment(remark)) + "\n"
        elif not remark:
            text += f"{declaration}\n"
        elif len(declaration) + len(remark) + 7 <= WIDTH:
            text += f"{declaration}  // {remark}\n"
        else:
            text += "\n".join([*comment(remark), declaration]) + "\n"
    return text


def heading(text: str) -> tuple[str, str]:
    """Return a heading among declarations."""
    return "", text


def comment(text: str) -> list[str]:
    """Wrap a comment; a line break in a column's name must not end it."""
    return wrap(" ".join(text.split()), WIDTH - 2, initial_indent="// ", subsequent_indent="//   ")


def statement(text: str, width: int) -> str:
    """Write a statement, its further lines indented if it is too long for one."""
    margin = " " * (len(text) - len(text.lstrip()))
    tied = INDEX.sub(lambda index: index[0].replace(" ", TIED), text)
    lines = wrap(tied, width, subsequent_indent=f"{margin}  ", break_long_words=False,
                 break_on_hyphens=False, drop_whitespace=True)  # fmt: skip
    return "\n".join(lines).replace(TIED, " ") + "\n"


def call(head: str, arguments: list[str], tail: str, width: int) -> str:
    """Write a call or signature, its arguments wrapped under the opening parenthesis."""
    margin = " " * (len(head) + 1)
    lines = [f"{head}("]
    for index, argument in enumerate(arguments):
        piece = argument + (f"){tail}" if index == len(arguments) - 1 else ",")
        fits = len(lines[-1]) + len(piece) + 1 <= width
        if index == 0:
            lines[-1] += piece
        elif fits:
            lines[-1] += f" {piece}"
        else:
            lines.append(margin + piece)
    return "\n".join(lines) + "\n"


def _fitted(text: str) -> str:
    """Wrap lines that long names have made too long, if that helps; comments go before code."""
    lines = []
    for line in text.splitlines():
        code, _, words = line.partition("  // ")
        wrapped = statement(code, WIDTH)
        if len(line) <= WIDTH or max(map(len, wrapped.splitlines()), default=0) > WIDTH:
            lines.append(f"{line}\n")
            continue
        margin = " " * (len(line) - len(line.lstrip()))
        lines.append(f"{margin}// {words}\n{wrapped}" if words else wrapped)
    return "".join(lines)
