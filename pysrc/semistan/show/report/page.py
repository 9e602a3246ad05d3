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

MATHS = re.compile(
    r"(?P<function>\b(?:log|logit|probit|cloglog|cauchit)\b)|(?P<operator>[EP](?=\[))"
    r"|(?P<words>[^\W\d_]{2,}(?: [^\W\d_]{2,})*)|(?P<name>[^\W\d_])|(?P<number>\d+)"
    r"|(?P<sign>[^\w\s])"
)
MATHML = {
    "function": '<mi>{}</mi><mspace width="0.2em"></mspace>',
    "operator": '<mi mathvariant="normal">{}</mi>',
    "words": "<mtext>{}</mtext>",
    "name": "<mi>{}</mi>",
    "number": "<mn>{}</mn>",
    "sign": '<mo stretchy="false">{}</mo>',
}
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
    environment.filters |= {"inline": inline, "highlighted": highlighted, "mathml": mathml}
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


def mathml(text: str) -> Any:
    """Set a formula as ``log E[y | y > 0]``: functions, words, names of a letter, and signs."""
    from markupsafe import Markup

    tokens = MATHS.finditer(text)
    return Markup("").join(Markup(MATHML[str(t.lastgroup)]).format(t[0]) for t in tokens)


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
