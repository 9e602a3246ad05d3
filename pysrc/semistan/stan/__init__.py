"""HOW it is sampled: program text, data, CmdStan, compile cache, NUTS."""
