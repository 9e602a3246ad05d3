"""From a report's content to one HTML page that needs nothing else.

The Content-Security-Policy allows the page's own style and script, by their hashes, and
pictures within the page; any request is forbidden. Without the script the page is complete.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from importlib.resources import files
from typing import Any

from semistan.show.report.blocks import Report

CODE = re.compile(r"`([^`]+)`")
STAN_MARKS = re.compile(
    r"(?P<comment>//[^\n]*)|"
    r"^(?P<block>(?:functions|(?:transformed )?(?:data|parameters)|model|generated quantities)\b)",
    re.MULTILINE,
)


def render(report: Report) -> str:
    """Write a report as HTML; every text is escaped."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {"inline": inline, "highlighted": highlighted}
    style, script = _asset("style.css"), _asset("page.js")
    return environment.from_string(_asset("page.html.jinja")).render(
        report=report,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
    )


def inline(text: str) -> Any:
    """Escape a text and set the words between its backticks as code."""
    from markupsafe import Markup, escape

    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def highlighted(text: str, language: str) -> Any:
    """Escape a program, and mark comments and block names if it is Stan."""
    from markupsafe import Markup, escape

    if language != "stan":
        return escape(text)
    parts, end = [], 0
    for match in STAN_MARKS.finditer(text):
        mark = Markup('<span class="{}">{}</span>').format(match.lastgroup, match[0])
        parts += [escape(text[end : match.start()]), mark]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def _policy(style: str, script: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            "img-src data:",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")
