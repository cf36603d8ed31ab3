"""The command and its commands. Everything slow is imported inside them: help is immediate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from consort.cli import federation, running, use
from consort.cli import inspecting as looking
from consort.cli.demo import demo

app = typer.Typer(
    help="Federated learning for clients that are unlike: in data, in models, in tasks.",
    epilog="Add --debug to any command to see where an error comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def consort(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Federated learning for clients that are unlike: in data, in models, in tasks."""
    if version:
        from consort import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_COMMANDS: tuple[Callable[..., None], ...] = (
    demo,
    running.run,
    running.compare,
    running.resume,
    federation.server,
    federation.client,
    federation.status,
    looking.report,
    looking.inspect,
    looking.audit,
    looking.list_,
    use.export,
    use.enroll,
    use.verify,
)
for _command in _COMMANDS:
    app.command(_command.__name__.rstrip("_"))(_command)
app.add_typer(federation.site, name="site")
