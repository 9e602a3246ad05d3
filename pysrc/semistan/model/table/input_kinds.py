"""The kinds of a network's inputs; a new one is one file and a line here.

One that is written as a call, as ``image()``, has a line in ``INPUT_CALLS`` of
``formula/syntax.py`` too, which says how it may be written.
"""

from collections.abc import Mapping
from typing import Any

from semistan.model.formula.formula import Formula, Network
from semistan.model.table import embeddings, pictures, term_inputs
from semistan.model.table.inputs import InputKind, Inputs

INPUT_KINDS: dict[str, InputKind] = {
    "terms": term_inputs.KIND,
    "images": pictures.KIND,
    "embeddings": embeddings.KIND,
}


def kind_of(network: Network) -> InputKind:
    """Return the kind of a network's inputs."""
    return next(kind for kind in INPUT_KINDS.values() if kind.takes(network))


def inputs_from_plain(content: Mapping[str, Any], formula: Formula, network: Network) -> Inputs:
    """Rebuild a network's inputs from JSON data, which may come from anybody.

    Raises
    ------
    InputError
        If a term holds anything that a formula may not.
    KeyError, TypeError, AttributeError, ValueError
        If the data are no inputs of this network.
    """
    return kind_of(network).from_plain(content, formula, network)
