"""What the training rows say of each coefficient of smooths and groups.

The information on a coefficient r that multiplies Z in a predictor is the sum over the rows of
Z^2 h, with h minus the second derivative of a row's log-likelihood by the predictor, at the trained
parameters. Other coefficients are held there. The sampler's coordinates depend on it
(``model/parameter.py``), the posterior does not.
"""

from __future__ import annotations

import numpy as np

from semistan.density.derivatives import predictor_curvature
from semistan.density.starts import start_state, trained_phi, trained_values
from semistan.density.target import make_target
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.priors.groups import PHI
from semistan.model.table.rows import Rows
from semistan.model.terms.penalised import Penalised


def information(bundle: Bundle, rows: Rows) -> dict[str, Array]:
    """Return the information on the standardised coefficients' r, by their names and shapes.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Its training rows, with their response.
    """
    if not bundle.layout.centred:
        return {}
    target = make_target(bundle, rows)
    state = start_state(bundle, trained_values(bundle) | {PHI: trained_phi(bundle)})
    values = target.values(torch.tensor(state))
    found = {
        p.name: torch.zeros(p.centring.shape, dtype=torch.float64)
        for p in target.layout.centred
        if p.centring
    }
    for chunk, predictors in zip(target.chunks, target.predictors(values), strict=True):
        for predictor in bundle.design.predictors:
            name = predictor.name
            pairs = zip(predictor.terms, chunk.columns[name].blocks, strict=True)
            centred = [(t, b) for t, b in pairs if isinstance(t, Penalised) and t.names[0] in found]
            if not centred:
                continue
            bend = predictor_curvature(target, chunk, predictors, values, name)[1].clamp(min=0)
            for term, block in centred:
                found[term.names[0]] += term.information(bend, block)
    return {name: np.nan_to_num(total.numpy()) for name, total in found.items()}
