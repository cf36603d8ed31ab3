"""The commands that use a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consort.cli.options import Json, Quiet

Client = Annotated[str | None, typer.Option(help="Whose model, by name.", metavar="NAME")]


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")],
    client: Annotated[str, typer.Option(help="Whose model, by name.", metavar="NAME")],
    out: Annotated[Path, typer.Option(help="A file, .pt, .onnx or .safetensors.", metavar="FILE")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write a client's model (.pt, .onnx), once it is found to compute the same, or its encoder."""
    from consort.use.export import export as write

    exported = write(folder, client, out)
    facts = exported.facts
    if json:
        _print_json(
            file=str(out),
            client=facts.client,
            round=facts.round,
            outputs=facts.outputs,
            largest_difference=exported.difference,
        )
    elif not quiet:
        what = "encoder of " * exported.encoder + facts.architecture
        typer.echo(f"{out}: {what} of {facts.client} after round {facts.round}")
        if exported.encoder:
            return
        typer.echo(f"outputs: {', '.join(facts.outputs)}")
        typer.echo(
            f"largest difference to the model in the run: {exported.difference:.1e} "
            f"({exported.examples} examples)"
        )


def enroll(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The folder of a run, or an exported file.")
    ],
    user: Annotated[str, typer.Option(help="Whose signatures these are.", metavar="ID")],
    out: Annotated[Path, typer.Option(help="The template to write.", metavar="FILE")],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[PICTURE]...", help="More references.")
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option(metavar="PICTURE...", help="One to twelve genuine signatures."),
    ] = None,
    client: Client = None,
    far: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Forgeries to accept at most; if not given, equal errors."),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make a template of a user from a few genuine signatures."""
    from consort.use.persons import enroll as enroll_person

    pictures = [*(references or []), *(more or [])]
    terms = enroll_person(model, client, user, pictures, out, far).terms
    if json:
        _print_json(
            file=str(out), user=user, threshold=terms.threshold, far=terms.far, frr=terms.frr
        )
    elif not quiet:
        typer.echo(f"{out}: {user}, {len(pictures)} references, threshold {terms.threshold:.4f}")
        typer.echo(
            f"on validation data of users it knows, the client so accepts {terms.far:.1%} of the "
            f"forgeries and rejects {terms.frr:.1%} of the genuine signatures"
        )


def verify(
    template: Annotated[Path, typer.Argument(metavar="TEMPLATE", help="What `enroll` wrote.")],
    query: Annotated[Path, typer.Argument(metavar="PICTURE", help="The signature in question.")],
    model: Annotated[
        Path | None, typer.Option(help="The model's file, if it was moved.", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Accept a signature (exit code 0) or reject it (1); 2, if that cannot be decided."""
    from consort.errors import ConsortError, UsageError
    from consort.use.persons import verify as decide

    try:
        decision = decide(template, query, model)
    except (ConsortError, OSError) as error:  # never to be taken for a rejection
        raise UsageError(str(error)) from error
    if json:
        _print_json(
            user=decision.user,
            accepted=decision.accepted,
            score=decision.score,
            threshold=decision.threshold,
        )
    elif not quiet:
        word = "accepted" if decision.accepted else "rejected"
        typer.echo(
            f"{word}: {query} as {decision.user}, score {decision.score:.4f}, "
            f"threshold {decision.threshold:.4f}"
        )
    raise typer.Exit(0 if decision.accepted else 1)


def _print_json(**values: object) -> None:
    from json import dumps

    typer.echo(dumps(values, indent=1))
