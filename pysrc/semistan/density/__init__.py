"""HOW LIKELY: the log posterior in PyTorch, its curvature and modes."""
