"""Response distributions and their links."""
