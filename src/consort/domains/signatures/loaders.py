"""Signature data sets in their published layouts.

All loaders take the same arguments:

- `folder`: the data folder;
- `size`: height and width of the images in pixels;
- `canvas`: height and width of the canvas on which signatures are centred before scaling; by
  default the one published for the data set;
- `only_users`: a range of users to load, see `Users`; by default all.

They return a data set with the tasks `identify` and `detect` and raise `UsageError` if the files
are not found and `Failure` if a file is damaged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from consort.core.bounds import LocalFile
from consort.data.dataset import Dataset
from consort.data.folder import natural
from consort.domains.signatures.dataset import signature_dataset
from consort.domains.signatures.layout import Signature, SignatureLayout, find
from consort.domains.signatures.preprocess import Size
from consort.domains.signatures.scan import Scan
from consort.errors import Failure, UsageError

Side = Annotated[int, Field(ge=1)]
Sides = tuple[Side, Side]
"""Height and width in pixels."""
Users = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
"""The first user, counted from 0, and the end of the range, which is excluded."""
Empty = tuple[()]
"""Selects the default: the published canvas, or all users."""

SIZE: Sides = (256, 256)


def cedar(
    folder: Path | None,
    *,
    size: Sides = SIZE,
    canvas: Sides | Empty = (),
    only_users: Users | Empty = (),
) -> Dataset:
    """CEDAR: 55 users with 24 genuine signatures and 24 forgeries each (Kalera et al. 2004).

    See the module for the arguments.
    """
    original, forgery = r"original_(?P<user>\d+)_\d+", r"forgeries_(?P<user>\d+)_\d+"
    files = "{original,forgeries}_<user>_<number>.png"
    published = SignatureLayout(
        "signatures", f"full_org/{original}", f"full_forg/{forgery}", f"full_{{org,forg}}/{files}"
    )
    reduced = SignatureLayout(
        "signatures/cedar", rf"\d+/{original}", rf"\d+/{forgery}", f"<user>/{files}"
    )
    canvases = {published: (730, 1042), reduced: (180, 270)}
    return _loaded("cedar", folder, canvases, size, canvas, only_users)


def bhsig_bengali(
    folder: Path | None,
    *,
    size: Sides = SIZE,
    canvas: Sides | Empty = (),
    only_users: Users | Empty = (),
) -> Dataset:
    """BHSig260, Bengali: 100 users with 24 genuine and 30 forged each (Pal et al. 2016).

    See the module for the arguments.
    """
    canvases = _bhsig("Bengali", (310, 1100))
    return _loaded("bhsig_bengali", folder, canvases, size, canvas, only_users)


def bhsig_hindi(
    folder: Path | None,
    *,
    size: Sides = SIZE,
    canvas: Sides | Empty = (),
    only_users: Users | Empty = (),
) -> Dataset:
    """BHSig260, Hindi: 160 users with 24 genuine and 30 forged each (Pal et al. 2016).

    See the module for the arguments.
    """
    canvases = _bhsig("Hindi", (450, 1350))
    return _loaded("bhsig_hindi", folder, canvases, size, canvas, only_users)


def _bhsig(script: str, canvas: Size) -> dict[SignatureLayout, Size]:
    """The layouts with their canvases; users are read from folders: some file names are wrong."""
    letter = script[0]
    names = (
        rf"(?P<user>\d+)/{letter}-S-\d+-G-\d+",
        rf"(?P<user>\d+)/{letter}-S-\d+-F-\d+",
        f"<user>/{letter}-S-<user>-{{G,F}}-<number>.tif",
    )
    return {
        SignatureLayout(f"BHSig260/{script}", *names): canvas,
        SignatureLayout(f"signatures/bhsig260-{script.lower()}", *names): (256, 256),
    }


def gpds(
    folder: Path | None,
    *,
    size: Sides = SIZE,
    canvas: Sides | Empty = (),
    only_users: Users | Empty = (),
) -> Dataset:
    """GPDS synthetic: up to 10,000 users with 24 genuine and 30 forged each (Ferrer et al. 2015).

    See the module for the arguments.
    """
    layout = SignatureLayout(
        "GPDSS10000",
        r"(?P<user>\d+)/c-\d+-\d+",
        r"(?P<user>\d+)/cf-\d+-\d+",
        "<user>/{c,cf}-<user>-<number>.jpg",
    )
    return _loaded("gpds", folder, {layout: (952, 1360)}, size, canvas, only_users)


def signature_folder(
    folder: Path | None,
    *,
    path: LocalFile = "signatures",
    size: Sides = SIZE,
    canvas: Sides | Empty = (),
    only_users: Users | Empty = (),
) -> Dataset:
    """Your own signatures, in a folder for each user or as in the SigComp competitions.

    See the module for the other arguments.

    Args:
        path: The folder of the signatures below the data folder.
    """
    by_user = SignatureLayout(
        path,
        r"(?P<user>[^/]+)/genuine/[^/]+",
        r"(?P<user>[^/]+)/forged/[^/]+",
        "<user>/{genuine,forged}/*.png",
    )
    competition = SignatureLayout(
        path,
        r"[^/]*genuine[^/]*/(?P<user>\d{3})_\d+",
        r"[^/]*forg[^/]*/\d+(?P<user>\d{3})_\d+",
        "{Genuine,Forgeries}/[<forger>]<user>_<number>.png",
    )
    canvases = {by_user: None, competition: None}
    return _loaded("signature_folder", folder, canvases, size, canvas, only_users)


def _loaded(
    name: str,
    folder: Path | None,
    canvases: Mapping[SignatureLayout, Size | None],
    size: Size,
    canvas: Size | Empty,
    only_users: Users | Empty,
) -> Dataset:
    signatures, layout = find(name, folder, tuple(canvases))
    users = _users(name, signatures, only_users)
    chosen = first_of_each([signature for signature in signatures if signature.user in users])
    scan = Scan(size, canvas or canvases[layout])
    images = [scan.read(signature.path) for signature in chosen]
    numbers = np.array([users[signature.user] for signature in chosen])
    truths = np.array([signature.genuine for signature in chosen])
    return signature_dataset(name, np.stack(images), numbers, truths, scan)


def _users(name: str, signatures: Sequence[Signature], only: Users | Empty) -> dict[str, int]:
    users = sorted({signature.user for signature in signatures}, key=natural)
    chosen = users[slice(*only)] if only else users
    if not chosen:
        raise UsageError(
            f"data set {name!r} has the users 0 to {len(users) - 1}, none of them in the range "
            f"only_users = {list(only)}"
        )
    return {user: number for number, user in enumerate(chosen)}


def first_of_each(signatures: Sequence[Signature]) -> list[Signature]:
    """Removes files that repeat another file of the same user and class: splits would leak.

    Args:
        signatures: All signatures.

    Returns:
        The first file of each content.
    """
    distinct: dict[tuple[str, bool, bytes], Signature] = {}
    for signature in signatures:
        key = signature.user, signature.genuine, _digest(signature.path)
        distinct.setdefault(key, signature)
    return list(distinct.values())


def _digest(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from error
