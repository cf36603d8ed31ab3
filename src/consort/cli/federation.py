"""The commands for federations between institutions: `server`, `client`, `status`.

Slow modules are imported inside them.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from consort.cli.options import (
    Algorithm,
    Changes,
    Json,
    Log,
    LogFile,
    LogStyle,
    Quiet,
    RecipeName,
    Scale,
    Seed,
)
from consort.cli.participating import (
    ClientFolder,
    ClientName,
    DataFolder,
    OnlyRecipe,
    OtherModel,
    OtherTasks,
    participant_of,
)
from consort.cli.passphrase import PassphraseFile, passphrase_of
from consort.cli.running import finish, named_recipe
from consort.cli.site import need_flower
from consort.errors import UsageError


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
    by_hand: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="A client without connection, reached by files that are carried."
        ),
    ] = [],  # noqa: B006
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve figures for Prometheus; on this machine by default."
        ),
    ] = None,
    passphrase_file: PassphraseFile = None,
    log: Log = LogStyle.text,
    log_file: LogFile = None,
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
    from consort.deployment.logs import LogObserver, logging_to
    from consort.deployment.metrics import MetricsObserver, figures
    from consort.deployment.metrics_page import MetricsPage, metrics_address
    from consort.deployment.server import FederationServer
    from consort.run.observer import Observers

    page = metrics_address(metrics, listen) if metrics is not None else None
    _, loaded = named_recipe(recipe, scale, changes)
    name = algorithm or next(iter(loaded.algorithms))
    number = loaded.seeds[0] if seed is None else seed
    opened = ServerCredentials.open(
        credentials, passphrase_of(passphrase_file, credentials / "server.key")
    )
    with ExitStack() as stack:
        stack.enter_context(logging_to(log_file, log is LogStyle.json))
        screen = stack.enter_context(Screen(quiet or log is LogStyle.json, json))
        federation = FederationServer(
            loaded, name, number, out, opened, deadline, screen.say, by_hand
        )
        if page:
            text = partial(figures, federation.counters, federation.status)
            stack.enter_context(MetricsPage(page, text))
        progress = screen.watch(name, number, loaded.run.rounds)
        counting = MetricsObserver(federation.counters)
        federation.go(listen, Observers(progress, counting, LogObserver()))
    finish([out], screen)


def client(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.")],
    credentials: ClientFolder,
    data: DataFolder,
    name: ClientName,
    model: OtherModel = None,
    tasks: OtherTasks = None,
    recipe: OnlyRecipe = None,
    passphrase_file: PassphraseFile = None,
    log: Log = LogStyle.text,
    log_file: LogFile = None,
) -> None:
    """Take part in a federation with the data on this machine. Runs until Ctrl-C.

    A study that is new waits until it is approved: see consort site approve.
    """
    need_flower()
    from consort.deployment.client import take_part
    from consort.deployment.logs import logging_to

    check_address(server)

    def say(text: str) -> None:
        if log is LogStyle.text:
            typer.echo(f"{name}: {text}", err=True)

    opened, participant = participant_of(
        credentials, data, name, model, tasks, recipe, passphrase_file, say
    )
    try:
        with logging_to(log_file, log is LogStyle.json):
            take_part(server, opened, participant, say)
    except KeyboardInterrupt:
        say("stopped; nothing is lost: repeat the command to rejoin")


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder given to consort server as --out.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the state of a federation. Lists its round, its clients and the latest events.

    The exit status is 1 if the server has died or stopped.
    """
    from json import dumps

    from consort.cli.show_status import show_status
    from consort.deployment.status import current_status

    table = current_status(folder)
    if json:
        typer.echo(dumps(table, indent=1))
    else:
        show_status(table)
    if table["phase"].startswith(("dead", "stopped")):
        raise typer.Exit(1)


def check_address(text: str) -> None:
    """Checks that a text has the form HOST:PORT.

    Raises:
        UsageError: If it has not.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{text} is not an address: write HOST:PORT, such as fl.example.org:9092")
