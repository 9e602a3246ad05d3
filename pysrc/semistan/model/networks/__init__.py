"""Networks as pure functions of one flat weight vector."""
