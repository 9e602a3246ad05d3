"""The story: prepare, fit, predict, explain, compare, cross-validate."""
