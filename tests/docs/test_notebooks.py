"""The notebooks run from their first cell to their last, and show what they promise."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, page

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_it_runs(path: Path, tmp_path: Path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    start = time.monotonic()
    nbclient.NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert time.monotonic() - start < 60  # about 5 s alone; the machine may be busy
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = [output.data["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert any("<svg" in text and "<table" in text for text in pages), "an outcome"
    bars = [text for text in pages if "<progress" in text]
    assert bars
    assert all("finished" in text for text in bars)
    assert not [output for output in shown if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_without_outputs_and_linked(path: Path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert f"../notebooks/{path.name}" in page("python.md").links
