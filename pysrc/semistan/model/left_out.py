"""What intervals of the network's part leave out, in a sentence."""

from __future__ import annotations

from semistan.model.bundle import Bundle
from semistan.words import listed


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
            f"({bundle.completion.text}).{_without_part(bundle)}"
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


def _without_part(bundle: Bundle) -> str:
    """Name the coefficients that a normal approximation does not move."""
    bounded = [
        name
        for group in bundle.model.priors
        for name, prior in zip(group.names, group.written, strict=True)
        if prior.is_bounded
    ]
    if not bounded:
        return ""
    have = "has" if len(bounded) == 1 else "have"
    return (
        f" {listed(bounded)}, between bounds, {have} no part of it: intervals are those of the "
        "subspace."
    )
