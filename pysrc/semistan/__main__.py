"""``python -m semistan`` is the command line."""

from semistan.command.cli import main

main()
