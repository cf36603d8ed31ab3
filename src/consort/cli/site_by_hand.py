"""`consort site pack` and `unpack`: messages for a client without connection, carried as files.

Slow modules are imported inside the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consort.cli.participating import OnlyRecipe, OtherModel, OtherTasks, participant_of
from consort.cli.passphrase import PassphraseFile
from consort.cli.site import need_flower, site
from consort.errors import Failure, UsageError


@site.command()
def pack(
    run: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder given to consort server as --out.")
    ],
    name: Annotated[str, typer.Argument(help="The client's name.")],
    file: Annotated[Path, typer.Argument(help="The file to write and to carry to the client.")],
) -> None:
    """Server: write the message that waits for a client without connection."""
    need_flower()
    from consort.core.files import write_file
    from consort.deployment.courier import waiting_for

    write_file(file, waiting_for(run, name))
    typer.echo(f"carry {file} to {name}, and bring back the answer: consort site unpack")


@site.command()
def unpack(
    file: Annotated[Path, typer.Argument(help="The file that was carried.")],
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Server: hand an answer to the run in this folder."),
    ] = None,
    credentials: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Client: folder of consort site join.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Client: folder with its client.toml.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Client: its name in the federation.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Client: the answer to carry back.")
    ] = None,
    model: OtherModel = None,
    tasks: OtherTasks = None,
    recipe: OnlyRecipe = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Client: answer a message that was carried. Server, with --run: take in an answer."""
    need_flower()
    if run is not None:
        from consort.deployment.courier import bring_back

        typer.echo(f"the answer of {bring_back(run, file)} is taken in")
        return
    if credentials is None or data is None or name is None or out is None:
        raise UsageError(
            "a client gives --credentials, --data, --name and --out; the operator of the server "
            "gives --run"
        )
    from consort.core.files import held
    from consort.deployment.client import answer_to
    from consort.deployment.courier import read_parts, write_parts
    from consort.deployment.envelope import ClientEnvelopes

    def say(text: str) -> None:
        typer.echo(f"{name}: {text}", err=True)

    opened, participant = participant_of(
        credentials, data, name, model, tasks, recipe, passphrase_file, say
    )
    with held(participant.folder, "client.lock", "each client is one process"):
        answer = answer_to(read_parts(file), ClientEnvelopes.of(opened), participant)
    if not answer:
        raise Failure(f"{file} was not answered")
    write_parts(out, answer)
    typer.echo(f"carry {out} back to the operator of the server")
