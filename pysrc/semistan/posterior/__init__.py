"""WHAT was learnt: the run, its draws, diagnostics, summary and predictions."""
