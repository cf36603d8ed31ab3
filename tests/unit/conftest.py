import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    """The folder with real data sets, for those who have one."""
    if not os.environ.get("CONSORT_DATA"):
        pytest.skip("CONSORT_DATA is not set")
    return Path(os.environ["CONSORT_DATA"])
