"""All that is used of Flower's inside, in one place: check it when flwr is upgraded.

Flower 1.41 would start a new process for every message. With `--isolation process` it leaves
that to others, and these are our own processes, which live as long as the run.
"""

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
