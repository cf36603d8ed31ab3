"""What a SuperLink and its server need to talk to each other on one machine."""

from __future__ import annotations

import os
from pathlib import Path

from consort.core.files import make_folder, write_file
from consort.deployment.certificates import certificate_of, pem_of
from consort.deployment.keys import new_key, write_key

_DAYS = 3650  # no run takes longer


def make_local_credentials(folder: Path) -> None:
    """Makes a certificate for 127.0.0.1 and the secret of Flower's executors, anew every time.

    Args:
        folder: Where to write `link.key`, `link.pem`, `link-ca.pem` and `executor.secret`.
    """
    make_folder(folder)
    signer, key, local = new_key(fast=True), new_key(fast=True), ["127.0.0.1"]
    authority = certificate_of("Consort link", signer.public_key(), signer, None, _DAYS)
    made = certificate_of(local[0], key.public_key(), signer, authority, _DAYS, local)
    write_key(folder / "link.key", key, None)
    write_file(folder / "link.pem", pem_of(made))
    write_file(folder / "link-ca.pem", pem_of(authority))
    write_file(folder / "executor.secret", os.urandom(32))
