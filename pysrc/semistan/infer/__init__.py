"""HOW IT IS SAMPLED: methods of inference and the toolchain."""
