"""The command line, run in this process."""

import sys

from semistan.command import cli


def command_in(folder, monkeypatch, capsys):
    """Return what runs ``semistan`` in a folder and gives exit code, output and error."""

    def run(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["semistan", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as caught:
            code = caught.code or 0
        output = capsys.readouterr()
        return code, output.out, output.err

    return run
