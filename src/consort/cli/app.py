"""The command `consort` and its subcommands.

Slow modules are imported inside the subcommands, so that `--help` appears at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from consort.cli import (  # noqa: F401
    cleaning,
    federation,
    inspecting,
    metrics,
    running,
    site_by_hand,
    site_keys,
    site_study,
    tables,
    tune,
    use,
)
from consort.cli.demo import demo
from consort.cli.site import site
from consort.cli.site_privacy import privacy

app = typer.Typer(
    help="Federated learning for heterogeneous clients: different data, models and tasks.",
    epilog="Add --debug to any command to see the full traceback of an error.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def consort(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Federated learning for heterogeneous clients: different data, models and tasks."""
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
    tune.tune,
    federation.server,
    federation.client,
    federation.status,
    inspecting.report,
    tables.table,
    inspecting.inspect,
    inspecting.audit,
    inspecting.list_,
    cleaning.clean,
    use.export,
    use.enroll,
    use.verify,
    metrics.metrics,
)
for _command in _COMMANDS:
    app.command(_command.__name__.rstrip("_"))(_command)
site.command()(privacy)
app.add_typer(site, name="site")
