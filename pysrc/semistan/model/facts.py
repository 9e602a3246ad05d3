"""A trained model in a few lines, as text and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from semistan.model.design import Design
from semistan.model.formula.patterns import shortened
from semistan.model.model import Model
from semistan.model.subspace import Subspace
from semistan.model.trained import Source


def trained_facts(
    model: Model, subspace: Subspace, source: Source, subspaces: int
) -> dict[str, str]:
    """Return what was trained on what, by name; how many times if in several subspaces."""
    dropped = f" ({source.dropped} dropped)" if source.dropped else ""
    trunks = trunks_text(model.design)
    return {
        "Family": model.family.words,
        "Formula": shortened(model.config.formula),
        "Data": f"{source.rows} rows{dropped}",
        "Network": f"{model.leading.text}; {_moves(model, subspace, subspaces)}",
        **({"Trunk": trunks} if trunks else {}),
    }


def trunks_text(design: Design) -> str:
    """Say what made networks' inputs of images, and that it is not kept; nothing without trunks."""
    made = (inputs.made_by for inputs in design.networks if inputs.made_by)
    return "; ".join(dict.fromkeys(made))


def _moves(model: Model, subspace: Subspace, subspaces: int) -> str:
    """Say which of the weights are sampled, and from how many trainings."""
    d, k, origin = subspace.d, subspace.k, subspace.origin
    if model.moves == "all":
        trainings = f", around {subspaces} trainings" if subspaces > 1 else ""
        return f"all {d} weights are sampled{trainings}"
    number = f"{subspaces} subspaces" if subspaces > 1 else "a subspace"
    of_curve = _of_curve(model)
    beyond = f", {of_curve} of them a curve's" if of_curve and of_curve < k else ""
    return f"{d} weights in {number} of k = {k} ({origin}{beyond})"


def _of_curve(model: Model) -> int:
    """Return how many dimensions of all networks are a curve's, 0 where all are."""
    curve, network = model.config.subspace.curve or 0, model.network
    if not network.dimensions:
        return curve * len(network.parts)
    return sum(min(curve, k) for k in network.dimensions)


def facts_text(facts: Mapping[str, str]) -> str:
    """Align the facts at their colons."""
    width = max(len(name) for name in facts)
    return "\n".join(f"{name:>{width}}: {text}" for name, text in facts.items())


def facts_html(title: str, facts: Mapping[str, str]) -> str:
    """Lay the facts out as a table."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"
