"""``python -m semistan`` is the command line."""

from semistan.cli import main

main()
