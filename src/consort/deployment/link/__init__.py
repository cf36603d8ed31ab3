"""All code that depends on Flower's internals: check it whenever flwr is upgraded.

Flower 1.41 and 1.42 start a new process for every message. With `--isolation process` they leave
that to other programs: here, to our own processes, which live as long as the run.
"""

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
