"""`consort site rotate`: new keys in place of old ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consort.cli.passphrase import PassphraseFile, passphrase_of
from consort.cli.site import Days, need_flower, site


@site.command()
def rotate(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of the server's or a client's credentials."),
    ],
    name: Annotated[
        str | None, typer.Option(help="The client's name, if these are a client's credentials.")
    ] = None,
    days: Days = 365,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make a new private key: the server's, or a client's with --name.

    A server that is running uses its new key after a restart.
    """
    need_flower()
    from consort.deployment.credentials import ClientCredentials, ServerCredentials

    if name is None:
        passphrase = passphrase_of(passphrase_file, folder / "ca.key")
        ServerCredentials.open(folder, passphrase).rotate(days)
        typer.echo(
            f"the server has a new key and certificate in {folder}; a running consort server "
            "uses them after a restart, and clients notice nothing"
        )
        return
    passphrase = passphrase_of(passphrase_file, folder / "client.key")
    client = ClientCredentials.open(folder, name, passphrase)
    client.rotate()
    typer.echo(
        f"send {client.request} to the operator of the server, and put the {name}.pem that you "
        f"receive into {folder}; until then the old key is in use. A run that has begun continues "
        "without this client until consort server is started again"
    )
