"""All code that depends on Flower's internals: check it whenever flwr is upgraded.

Flower 1.41 and 1.42 start a new process for every message. With `--isolation process` they leave
that to other programs: here, to our own processes, which live as long as the run.
"""

import os
from collections.abc import Mapping

_HERE = ("localhost", "127.0.0.1", "::1")


def without_local_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep connections within this machine away from a proxy.

    Args:
        environment: The variables of the user, whose other exceptions stay.
    """
    given = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if given.strip() == "*":
        return {}
    exceptions = ",".join([*filter(None, given.split(",")), *_HERE])
    return {"no_proxy": exceptions, "NO_PROXY": exceptions}


os.environ |= without_local_proxy(os.environ)
os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
