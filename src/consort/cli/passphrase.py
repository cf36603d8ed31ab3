"""The passphrase of private keys: from a file, the environment, or whoever sits at the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from consort.errors import UsageError

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the passphrase of the private keys; or set CONSORT_PASSPHRASE.",
    ),
]
_VARIABLE = "CONSORT_PASSPHRASE"


def passphrase_of(file: Path | None, *keys: Path) -> bytes | None:
    """The passphrase that a user gives; child processes do not get to know it.

    Args:
        file: The file that contains it, if there is one.
        keys: The private keys. If one of them is encrypted and no passphrase is given, the user
            is asked, unless this is not a terminal.

    Raises:
        UsageError: If the file is empty, or others can read it.
    """
    from consort.deployment.keys import check_private, is_encrypted

    given = os.environ.pop(_VARIABLE, "")
    if file is not None:
        check_private(file)
        given = file.read_text("utf-8").rstrip("\r\n")
        if not given:
            raise UsageError(f"{file} is empty, but should contain a passphrase")
    locked = [key for key in keys if is_encrypted(key)]
    if not given and locked and sys.stdin.isatty():
        given = typer.prompt(f"passphrase of {locked[0]}", hide_input=True, err=True)
    return given.encode() or None
