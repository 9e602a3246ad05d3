"""Prior densities, and the priors of one model."""
