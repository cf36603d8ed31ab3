"""The commands for federations between institutions: `site`, `server`, `client`, `status`.

Slow modules are imported inside them.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from consort.cli.options import Algorithm, Changes, Json, Quiet, RecipeName, Scale, Seed
from consort.cli.running import finish, named_recipe
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
) -> None:
    """Server: create a certificate authority and the server's certificate."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    ServerCredentials.create(folder, host, days)
    typer.echo(
        f"created {folder}; keep it secret. Admit clients with: consort site admit {folder} REQUEST"
    )


@site.command()
def join(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the client's credentials.")
    ],
    name: Annotated[str, typer.Option(help="The client's name in the federation.")],
) -> None:
    """Client: create a key and a request for the operator of the server."""
    need_flower()
    from consort.deployment.credentials import ClientCredentials

    made = ClientCredentials.create(folder, name)
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
) -> None:
    """Server: admit a client. Prints the certificate file to send to it."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    typer.echo(str(ServerCredentials.open(folder).admit(request, days)))


@site.command()
def revoke(
    folder: ServerFolder, name: Annotated[str, typer.Argument(help="The client's name.")]
) -> None:
    """Server: revoke the admission of a client."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    ServerCredentials.open(folder).revoke(name)
    typer.echo(f"{name} is no longer admitted")


def server(
    recipe: RecipeName,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on.")],
    credentials: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder created by consort site init.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results.", metavar="DIR")],
    changes: Changes = [],  # noqa: B006
    algorithm: Algorithm = None,
    seed: Seed = None,
    scale: Scale = None,
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds that a client has to answer a call.")
    ] = 3600,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run one algorithm between institutions.

    Waits until all clients are connected. Continues the run if it was interrupted.
    """
    need_flower()
    check_address(listen)
    from consort.cli.show import Screen
    from consort.deployment.credentials import ServerCredentials
    from consort.deployment.server import FederationServer

    _, loaded = named_recipe(recipe, scale, changes)
    name = algorithm or next(iter(loaded.algorithms))
    number = loaded.seeds[0] if seed is None else seed
    opened = ServerCredentials.open(credentials)
    with Screen(quiet, json) as screen:
        observer = screen.watch(name, number, loaded.run.rounds)
        federation = FederationServer(loaded, name, number, out, opened, deadline, screen.say)
        federation.go(listen, observer)
    finish([out], screen)


def client(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.")],
    credentials: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder created by consort site join.")
    ],
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder with the client's data and its client.toml.")
    ],
    name: Annotated[str, typer.Option(help="The client's name in the federation.")],
    model: Annotated[
        str | None, typer.Option(help="Model to use instead of the one in client.toml.")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Tasks to use instead of those in client.toml: a,b"),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Take part only if the server runs exactly this recipe.")
    ] = None,
) -> None:
    """Take part in a federation with the data on this machine. Runs until Ctrl-C."""
    need_flower()
    from consort.deployment.client import read_brings, take_part
    from consort.deployment.credentials import ClientCredentials
    from consort.deployment.participant import Participant
    from consort.experiment.loading import load_recipe
    from consort.experiment.shipped import find_recipe

    check_address(server)
    opened = ClientCredentials.open(credentials, name)
    brings = read_brings(data, model, tasks.split(",") if tasks else [])

    def say(text: str) -> None:
        typer.echo(f"{name}: {text}", err=True)

    agreed = load_recipe(find_recipe(recipe)) if recipe else None
    participant = Participant(name, brings, data, credentials / "state", agreed, say)
    try:
        take_part(server, opened, participant, say)
    except KeyboardInterrupt:
        say("stopped; nothing is lost: repeat the command to rejoin")


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder given to consort server as --out.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the state of a federation. Lists its round, its clients and the latest events."""
    from json import dumps

    from consort.cli.show_status import show_status
    from consort.deployment.status import current_status

    table = current_status(folder)
    if json:
        typer.echo(dumps(table, indent=1))
    else:
        show_status(table)


def check_address(text: str) -> None:
    """Checks that a text has the form HOST:PORT.

    Raises:
        UsageError: If it has not.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{text} is not an address: write HOST:PORT, such as fl.example.org:9092")


def need_flower() -> None:
    """Checks that Flower is installed.

    Raises:
        UsageError: If it is not.
    """
    if find_spec("flwr") is None:
        raise UsageError("this command needs Flower: pip install 'fedconsort[flower]'")
