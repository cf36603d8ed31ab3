"""The commands for federations among institutions. Everything slow is imported inside them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from consort.cli.options import Algorithm, Changes, Json, Quiet, RecipeName, Scale, Seed
from consort.cli.running import finish, named_recipe
from consort.errors import UsageError

site = typer.Typer(help="Make the credentials of a federation.", no_args_is_help=True)

ServerFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The server's credentials.")]
Days = Annotated[int, typer.Option(min=1, help="How long the certificate is valid.")]


@site.command()
def init(
    folder: ServerFolder,
    host: Annotated[
        list[str], typer.Option(help="A name or address that clients reach the server by.")
    ],
    days: Days = 365,
) -> None:
    """Server: make an authority and the server's certificate."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    ServerCredentials.create(folder, host, days)
    typer.echo(f"made {folder}; keep it secret. Admit clients with consort site admit {folder}")


@site.command()
def join(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The client's credentials.")],
    name: Annotated[str, typer.Option(help="The client's name in the federation.")],
) -> None:
    """Client: make a key, and a request for the server's operator."""
    need_flower()
    from consort.deployment.credentials import ClientCredentials

    made = ClientCredentials.create(folder, name)
    typer.echo(
        f"send {made.request} to the server's operator; put the {name}.pem that comes back "
        f"into {folder}"
    )


@site.command()
def admit(
    folder: ServerFolder,
    request: Annotated[Path, typer.Argument(help="What the client made with consort site join.")],
    days: Days = 365,
) -> None:
    """Server: admit a client; send the certificate back to it."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    typer.echo(str(ServerCredentials.open(folder).admit(request, days)))


@site.command()
def revoke(
    folder: ServerFolder, name: Annotated[str, typer.Argument(help="The client's name.")]
) -> None:
    """Server: take a client's admission back."""
    need_flower()
    from consort.deployment.credentials import ServerCredentials

    ServerCredentials.open(folder).revoke(name)
    typer.echo(f"{name} is no longer admitted")


def server(
    recipe: RecipeName,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where clients reach it.")],
    credentials: Annotated[Path, typer.Option(metavar="DIR", help="From consort site init.")],
    out: Annotated[Path, typer.Option(help="Folder for the results.", metavar="DIR")],
    changes: Changes = [],  # noqa: B006
    algorithm: Algorithm = None,
    seed: Seed = None,
    scale: Scale = None,
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds that a client has for an answer.")
    ] = 3600,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run one algorithm among institutions: wait for the clients, or go on with such a run."""
    need_flower()
    check_address(listen)
    from consort.cli.show import Screen
    from consort.deployment.credentials import ServerCredentials
    from consort.deployment.server import Server

    _, loaded = named_recipe(recipe, scale, changes)
    name = algorithm or next(iter(loaded.algorithms))
    number = loaded.seeds[0] if seed is None else seed
    opened = ServerCredentials.open(credentials)
    with Screen(quiet, json) as screen:
        observer = screen.watch(name, number, loaded.run.rounds)
        Server(loaded, name, number, out, opened, deadline, screen.say).go(listen, observer)
    finish([out], screen)


def client(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the server listens.")],
    credentials: Annotated[Path, typer.Option(metavar="DIR", help="From consort site join.")],
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The client's data, with a client.toml.")
    ],
    name: Annotated[str, typer.Option(help="The client's name in the federation.")],
    model: Annotated[str | None, typer.Option(help="In the place of client.toml's.")] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help="In the place of client.toml's: a,b")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Take part in this recipe only, as the server has it.")
    ] = None,
) -> None:
    """Take part in a federation with this machine's data, until it is interrupted."""
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
        say("left; nothing is lost: give the same command again to come back")


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of consort server.")],
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show who is connected, which round it is, what is late, what failed and why."""
    from json import dumps

    from consort.cli.show_status import show_status
    from consort.deployment.status import current_status

    table = current_status(folder)
    if json:
        typer.echo(dumps(table, indent=1))
    else:
        show_status(table)


def check_address(text: str) -> None:
    """Refuses what is not HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{text}: write HOST:PORT, such as fl.example.org:9092")


def need_flower() -> None:
    """Refuses to go on without the extra."""
    if find_spec("flwr") is None:
        raise UsageError("this needs Flower: pip install 'fedconsort[flower]'")
