"""WHAT STAN IS TOLD: the program's text and data, without files or processes."""
