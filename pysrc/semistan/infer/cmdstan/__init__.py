"""CmdStan: find it, install it, compile with it."""
