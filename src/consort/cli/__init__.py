"""The command `consort`."""

from __future__ import annotations

import errno
import sys
import traceback
from tempfile import gettempdir


def main() -> None:
    """Runs the command line; an error is printed as one sentence, with `--debug` as a traceback."""
    from consort.cli.app import app
    from consort.errors import ConsortError

    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments)
    except (ConsortError, OSError) as error:
        if debug:
            print(getattr(error, "traceback", ""), file=sys.stderr)
            traceback.print_exc()
        else:
            print(f"error: {_sentence(error)}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 1))


def _sentence(error: Exception) -> str:
    """The message of an error; operating system errors name the file first, as ours do."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return (
            "the disk is full, in the folder of the results or in that of temporary files "
            f"({gettempdir()}): free some and repeat the command; finished rounds are not lost"
        )
    return str(error)
