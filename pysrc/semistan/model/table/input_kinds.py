"""The kinds of a network's inputs; a new one is one file and a line here.

One that is written as a call, as ``image()``, has a line in ``INPUT_CALLS`` of
``formula/syntax.py`` too, which says how it may be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from semistan.model.arrays import Array
from semistan.model.formula.formula import Formula, Network
from semistan.model.table import embeddings, pictures, term_inputs
from semistan.model.table.inputs import InputKind, Inputs
from semistan.model.table.multiplied import TIMES, learn_multiplied, multiplied_from_plain

if TYPE_CHECKING:
    import pandas as pd

INPUT_KINDS: dict[str, InputKind] = {
    "terms": term_inputs.KIND,
    "images": pictures.KIND,
    "embeddings": embeddings.KIND,
}


def learn_inputs(network: Network, table: pd.DataFrame) -> tuple[Inputs, Array]:
    """Learn a network's inputs from the training rows; return them and their numbers (N, Q).

    Raises
    ------
    InputError
        If they, or the term that it multiplies, cannot be used.
    """
    inputs, numbers = _kind_of(network).learn(network, table)
    if not network.times:
        return inputs, numbers
    return learn_multiplied(inputs, numbers, network.times, table)


def inputs_from_plain(content: Mapping[str, Any], formula: Formula, network: Network) -> Inputs:
    """Rebuild a network's inputs from JSON data, which may come from anybody.

    Raises
    ------
    InputError
        If a term holds anything that a formula may not.
    KeyError, TypeError, AttributeError, ValueError
        If the data are no inputs of this network.
    """
    own = {key: value for key, value in content.items() if key != TIMES}
    inputs = _kind_of(network).from_plain(own, formula, network)
    if not network.times:
        return inputs
    return multiplied_from_plain(inputs, content, formula, network.times)


def _kind_of(network: Network) -> InputKind:
    return next(kind for kind in INPUT_KINDS.values() if kind.takes(network))
