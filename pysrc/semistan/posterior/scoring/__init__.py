"""How well a posterior predicts: scores, cross-validation, comparison."""
