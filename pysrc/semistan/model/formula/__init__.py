"""A formula, from text to its parts."""
