"""WHAT is modelled: formula, design, families, priors, network."""
