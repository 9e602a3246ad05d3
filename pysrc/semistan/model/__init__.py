"""WHAT is modelled: formula, table, terms, predictors, families, priors, networks."""
