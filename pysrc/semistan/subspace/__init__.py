"""WHERE w may move: Subspace(p_bar, Pi), its construction and its predictor."""
