"""A bundle in a few lines, as text and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from semistan.model.formula.patterns import shortened

if TYPE_CHECKING:
    from semistan.model.bundle import Bundle


def bundle_facts(bundle: Bundle, subspaces: int = 1) -> dict[str, str]:
    """Return what was trained on what, by name; how many times if in several subspaces."""
    dropped = f" ({bundle.source.dropped} dropped)" if bundle.source.dropped else ""
    trunks = trunks_text(bundle)
    return {
        "Family": f"{bundle.family.name}, link {bundle.family.link}",
        "Formula": shortened(bundle.config.formula),
        "Data": f"{bundle.source.rows} rows{dropped}",
        "Network": f"{bundle.model.leading.text}; {_moves(bundle, subspaces)}",
        **({"Trunk": trunks} if trunks else {}),
    }


def trunks_text(bundle: Bundle) -> str:
    """Say what made networks' inputs of images, and that it is not kept; nothing without trunks."""
    made = (inputs.made_by for inputs in bundle.design.networks if inputs.made_by)
    return "; ".join(dict.fromkeys(made))


def _moves(bundle: Bundle, subspaces: int) -> str:
    """Say which of the weights are sampled, and from how many trainings."""
    d, k, origin = bundle.subspace.d, bundle.subspace.k, bundle.subspace.origin
    if bundle.model.moves == "all":
        trainings = f", around {subspaces} trainings" if subspaces > 1 else ""
        return f"all {d} weights are sampled{trainings}"
    number = f"{subspaces} subspaces" if subspaces > 1 else "a subspace"
    of_curve = _of_curve(bundle)
    beyond = f", {of_curve} of them a curve's" if of_curve and of_curve < k else ""
    return f"{d} weights in {number} of k = {k} ({origin}{beyond})"


def _of_curve(bundle: Bundle) -> int:
    """Return how many dimensions of all networks are a curve's, 0 where all are."""
    curve, network = bundle.config.subspace.curve or 0, bundle.network
    if not network.dimensions:
        return curve * len(network.parts)
    return sum(min(curve, k) for k in network.dimensions)


def left_out(bundle: Bundle, subspaces: int) -> str:
    """Say what intervals of the network's part leave out; nothing if all weights are sampled."""
    several, constant = subspaces > 1, ""
    if bundle.model.leading.any:
        constant = (
            "The uncertainty of the constant layers is that between trainings."
            if several
            else "The uncertainty of the constant layers is left out, so that intervals of the "
            "network's part are too narrow: fit three subspaces or more (--subspaces 3)."
        )
    if bundle.model.moves == "all":
        return constant
    if bundle.completion:
        within = (
            "The weights outside the subspace have their normal approximation at a mode inside it "
            f"({bundle.completion.text})."
        )
        pooled = (
            ""
            if several
            else " What differs between trainings is left out of intervals of the network's part: "
            "pool several (--subspaces 3)."
        )
        return f"{within}{pooled} {constant}".strip()
    other = "" if several else " or between trainings"
    within = (
        "Intervals of the network's part are within the subspace, which is not completed "
        f"({bundle.model.not_completed}): what varies outside it"
        f"{other} is left out, so that they are too narrow. They need all weights (k = auto, "
        "a larger budget) or several subspaces."
    )
    return f"{within} {constant}".strip()


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
