"""The Python face: a fit with verbs, and keywords for every key of ``model.toml``."""
