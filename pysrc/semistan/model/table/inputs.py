"""What is learnt of a network's inputs: terms of numbers and factors, images, or embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from semistan.model.formula.formula import Formula
from semistan.model.table.columns import Terms, terms_from_plain, to_plain
from semistan.model.table.embeddings import (
    Embeddings,
    embeddings_from_plain,
    embeddings_to_plain,
)
from semistan.model.table.pictures import Pictures, pictures_from_plain, pictures_to_plain

Inputs = Terms | Pictures | Embeddings


def inputs_to_plain(inputs: Inputs) -> dict[str, Any]:
    """Return a network's inputs as JSON-ready data."""
    if isinstance(inputs, Pictures):
        return pictures_to_plain(inputs)
    if isinstance(inputs, Embeddings):
        return embeddings_to_plain(inputs)
    plain: dict[str, Any] = to_plain(asdict(inputs))
    return plain


def inputs_from_plain(content: Mapping[str, Any], formula: Formula) -> Inputs:
    """Rebuild a network's inputs from JSON data, which may come from anybody.

    Raises
    ------
    InputError
        If a term holds anything that a formula may not.
    KeyError, TypeError, AttributeError, ValueError
        If the data are no inputs.
    """
    if "trunk" in content:
        return embeddings_from_plain(content, formula)
    if "image" in content:
        return pictures_from_plain(content, formula)
    return terms_from_plain(content, formula)
