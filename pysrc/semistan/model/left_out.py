"""What intervals of the network's part leave out, in a sentence."""

from __future__ import annotations

from semistan.model.bundle import Bundle


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
