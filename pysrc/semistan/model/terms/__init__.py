"""Kinds of terms: what each learns from the table."""
