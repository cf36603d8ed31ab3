"""The commands that use a trained model: `export`, `enroll`, `verify`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from consort.cli.options import Json, Quiet

Client = Annotated[str | None, typer.Option(help="The client whose model is used.", metavar="NAME")]


class Method(StrEnum):
    """How signatures are scored."""

    cosine = "cosine"
    svm = "svm"
    fused = "fused"


_ERRORS = {
    "genuine": "genuine ones rejected",
    "skilled": "skilled forgeries accepted",
    "random": "those of others accepted",
}


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")],
    client: Annotated[str, typer.Option(help="The client whose model is used.", metavar="NAME")],
    out: Annotated[
        Path, typer.Option(help="File to write: .pt, .onnx or .safetensors.", metavar="FILE")
    ],
    encoder: Annotated[
        bool, typer.Option("--encoder", help="Write the encoder's parameters alone (.safetensors).")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write a client's model to a file.

    A .pt (TorchScript) or .onnx file contains the whole model, and is kept only if its outputs are
    the same. A .safetensors file contains the state_dict alone.
    """
    from consort.use.export import export as write

    exported = write(folder, client, out, encoder)
    metadata = exported.metadata
    if json:
        _print_json(
            file=str(out),
            client=metadata.client,
            round=metadata.round,
            outputs=metadata.outputs,
            largest_difference=exported.difference,
        )
    elif not quiet:
        what = f"{exported.what} of {metadata.architecture}".removeprefix(" of ")
        typer.echo(f"{out}: {what} of {metadata.client} after round {metadata.round}")
        if exported.what:
            return
        typer.echo(f"outputs: {', '.join(metadata.outputs)}")
        typer.echo(
            f"largest difference from the model in the run: {exported.difference:.1e} "
            f"({exported.examples} examples)"
        )


def enroll(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The folder of a run, or an exported model.")
    ],
    user: Annotated[str, typer.Option(help="The user to enroll.", metavar="ID")],
    out: Annotated[Path, typer.Option(help="Template file to write.", metavar="FILE")],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[PICTURE]...", help="More genuine pictures.")
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PICTURE...",
            help="One to twelve images of genuine signatures or of one finger.",
        ),
    ] = None,
    client: Client = None,
    far: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Largest share of forgeries to accept; default: the equal error rate.",
        ),
    ] = None,
    method: Annotated[
        Method | None,
        typer.Option(help="How signatures are scored; default: what was best in validation."),
    ] = None,
    known: Annotated[
        bool, typer.Option("--known", help="The client trained with signatures of this user.")
    ] = False,
    duplicate: Annotated[
        bool,
        typer.Option(
            "--duplicate", help="Enroll even if a template beside it accepts all references."
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Create the template of a user from a few genuine signatures or fingerprints."""
    from consort.use.persons import enroll as enroll_person

    pictures = [*(references or []), *(more or [])]
    scoring = method.value if method else None
    found = enroll_person(
        model, client, user, pictures, out, far, scoring, known, duplicate
    ).metadata
    if json:
        _print_json(
            file=str(out),
            user=user,
            method=found.method,
            threshold=found.threshold,
            rates=found.rates,
            origin=found.origin,
        )
    elif not quiet:
        typer.echo(
            f"{out}: {user}, {len(pictures)} references, {found.method}, "
            f"threshold {found.threshold:.4f}"
        )
        typer.echo(f"errors of this threshold on {found.origin} (95 % interval):")
        for kind, (value, low, high) in found.rates.items():
            typer.echo(f"  {_ERRORS[kind]}: {value:.1%} ({low:.1%} to {high:.1%})")


def verify(
    template: Annotated[
        Path, typer.Argument(metavar="TEMPLATE", help="Template written by consort enroll.")
    ],
    query: Annotated[
        Path, typer.Argument(metavar="PICTURE", help="Image of the signature or fingerprint.")
    ],
    model: Annotated[
        Path | None, typer.Option(help="The model file, if it was moved.", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Accept or reject a signature or a fingerprint.

    The exit code is 0 if it is accepted, 1 if it is rejected, and 2 if this cannot be decided.
    """
    from consort.errors import ConsortError, UsageError
    from consort.use.persons import verify as decide

    try:
        decision = decide(template, query, model)
    except (
        ConsortError,
        OSError,
    ) as error:  # an error must not look like a rejection (exit code 1)
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
