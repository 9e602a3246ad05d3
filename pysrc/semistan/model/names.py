"""Names in Stan and in tables for what has a name in the data."""

from __future__ import annotations

import re


def stan_name(column: str) -> str:
    """Turn a design column into a part of a Stan name: ``C(g)[T.b]`` becomes ``gb``."""
    name = re.sub(r"\bC\(([^(),]*)(?:[^()]|\([^()]*\))*\)", r"\1", column)
    name = re.sub(r"\bI\(((?:[^()]|\([^()]*\))*)\)", r"\1", name)
    name = re.sub(r"\[(?:T\.|S\.|H\.|D\.)?([^\]]*)\]", r"\1", name)
    name = re.sub(r"[^A-Za-z0-9]+", "_", name.replace("(", "").replace(")", ""))
    return name.strip("_")
