"""What `consort client` and `consort site unpack` share: the options and the parts of a client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consort.cli.passphrase import passphrase_of

if TYPE_CHECKING:
    from consort.deployment.credentials import ClientCredentials
    from consort.deployment.participant import Participant

ClientFolder = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder created by consort site join.")
]
DataFolder = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder with the client's data and its client.toml.")
]
ClientName = Annotated[str, typer.Option(help="The client's name in the federation.")]
OtherModel = Annotated[
    str | None, typer.Option(help="Model to use instead of the one in client.toml.")
]
OtherTasks = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Tasks to use instead of those in client.toml: a,b"),
]
OnlyRecipe = Annotated[
    str | None, typer.Option(help="Approve exactly this recipe, and take part in no other.")
]


def participant_of(
    credentials: Path,
    data: Path,
    name: str,
    model: str | None,
    tasks: str | None,
    recipe: str | None,
    passphrase_file: Path | None,
    say: Callable[[str], Any],
) -> tuple[ClientCredentials, Participant]:
    """The credentials of a client, and the client itself, as its owner has described them.

    Args:
        credentials: The folder of its credentials.
        data: The folder of its data.
        name: Its name.
        model: The model to use instead of the one in client.toml.
        tasks: The tasks to use instead, separated by commas.
        recipe: The only recipe that it takes part in.
        passphrase_file: The file with the passphrase of its key.
        say: Prints a line for the owner.

    Raises:
        UsageError: If something is missing or not valid.
    """
    from consort.deployment.approval import Studies
    from consort.deployment.client import read_brings
    from consort.deployment.credentials import ClientCredentials
    from consort.deployment.participant import Participant
    from consort.deployment.policy import Policy
    from consort.deployment.privacy_ledger import FILE
    from consort.deployment.site import Identity
    from consort.deployment.site_log import SiteLog
    from consort.experiment.loading import load_recipe
    from consort.experiment.shipped import find_recipe

    passphrase = passphrase_of(passphrase_file, credentials / "client.key")
    opened = ClientCredentials.open(credentials, name, passphrase)
    brings = read_brings(data, model, tasks.split(",") if tasks else [])
    participant = Participant(
        name,
        brings,
        data,
        credentials / "state",
        load_recipe(find_recipe(recipe)) if recipe else None,
        say,
        Policy.read(credentials),
        Studies.of(credentials),
        SiteLog(credentials, opened.private_key),
        ledger=credentials / FILE,
        identity=Identity.of(opened),
    )
    return opened, participant
