"""Where work is done: this machine's cores, or others."""
