"""The command `consort`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command; what went wrong is one sentence, unless `--debug` asks for more."""
    from consort.cli.app import app
    from consort.errors import ClientFailed, ConsortError

    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments)
    except ConsortError as error:
        if debug:
            if isinstance(error, ClientFailed):
                print(error.traceback, file=sys.stderr)
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
