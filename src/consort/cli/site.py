"""The command group `site`: the credentials of a federation.

Slow modules are imported inside the commands.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from consort.cli.passphrase import PassphraseFile, passphrase_of
from consort.errors import UsageError

site = typer.Typer(help="Create and manage the credentials of a federation.", no_args_is_help=True)

ServerFolder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of the server's credentials.")
]
Days = Annotated[int, typer.Option(min=1, help="Days for which the certificate is valid.")]


@site.command()
def init(
    folder: ServerFolder,
    host: Annotated[
        list[str],
        typer.Option(help="A host name or IP address under which clients reach the server."),
    ],
    days: Days = 365,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Server: create a certificate authority and the server's certificate."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    ServerCredentials.create(folder, host, days, passphrase_of(passphrase_file))
    typer.echo(
        f"created {folder}; keep it secret. Admit clients with: consort site admit {folder} REQUEST"
    )


@site.command()
def join(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the client's credentials.")
    ],
    name: Annotated[str, typer.Option(help="The client's name in the federation.")],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Client: create a key and a request for the operator of the server."""
    need_flower()
    from consort.deployment.credentials import ClientCredentials

    made = ClientCredentials.create(folder, name, passphrase_of(passphrase_file))
    typer.echo(
        f"send {made.request} to the operator of the server, and put the {name}.pem that you "
        f"receive into {folder}"
    )


@site.command()
def admit(
    folder: ServerFolder,
    request: Annotated[
        Path, typer.Argument(help="The file that the client created with consort site join.")
    ],
    days: Days = 365,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Server: admit a client. Prints the certificate file to send to it."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    passphrase = passphrase_of(passphrase_file, folder / "ca.key")
    typer.echo(str(ServerCredentials.open(folder, passphrase).admit(request, days)))


@site.command()
def revoke(
    folder: ServerFolder, name: Annotated[str, typer.Argument(help="The client's name.")]
) -> None:
    """Server: revoke the admission of a client."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    ServerCredentials.open(folder).revoke(name)
    typer.echo(f"{name} is no longer admitted")


def need_flower() -> None:
    """Checks that Flower is installed; what this process writes from now on is its owner's only.

    Raises:
        UsageError: If it is not installed.
    """
    os.umask(0o077)
    if find_spec("flwr") is None:
        raise UsageError("this command needs Flower: pip install 'fedconsort[flower]'")
