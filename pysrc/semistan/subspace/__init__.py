"""WHERE w may move: every way to construct a subspace."""
