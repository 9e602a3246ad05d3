"""What R writes behind a comma to fix a parameter: ``y ~ x, nu = 4``."""

from __future__ import annotations

import re

from semistan.model.formula.formula import spans_of
from semistan.model.formula.shorthand import written_out
from semistan.model.formula.syntax import check_size, formula_error, masked

_FIXED = re.compile(r"\s*([A-Za-z]\w*)\s*=\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


def fixed_values(text: str) -> tuple[str, dict[str, str]]:
    """Split a formula into the predictors and the parameters that are fixed, with their values.

    Without any, the formula is returned as it is written.

    Raises
    ------
    InputError
        If one is fixed twice, with its place.
    """
    if "=" not in masked(text):
        return text, {}
    check_size(text)
    plain = written_out(text)
    parts, values = [], {}
    for start, end in spans_of(plain):
        found = _FIXED.fullmatch(plain, start, end)
        if found is None or start == 0:
            parts.append(plain[start:end])
        elif found[1] in values:
            raise formula_error(plain, f"'{found[1]}' is fixed twice", found.span(1))
        else:
            values[found[1]] = found[2]
    return (",".join(parts), values) if values else (text, {})
