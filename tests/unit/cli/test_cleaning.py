"""The command `clean`."""

from __future__ import annotations

from tests.unit.cli.command import RECIPE, consort


def test_the_command_lists_before_it_deletes(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    out = tmp_path / "out"
    consort("compare", path, "--out", out, "--quiet")
    folder = out / "fedavg" / "seed-0"
    (folder / "round-000002.ckpt").rename(tmp_path / "kept")  # as if it were not finished
    shown = consort("clean", out)
    assert f"{folder}: not finished, kept" in shown.out
    assert "MiB can be deleted: add --yes, if these runs are to be neither extended" in shown.out
    assert list(out.rglob("*.ckpt"))
    shown = consort("clean", out, "--yes")
    assert shown.out.endswith("MiB deleted\n")
    assert [p.parent for p in out.rglob("*.ckpt")] == [folder]
    (tmp_path / "kept").rename(folder / "round-000002.ckpt")
    assert consort("compare", path, "--out", out, "--quiet").code == 0
    shown = consort("export", out / "ditto" / "seed-0", "--client", "client-0", "--out", "m.pt")
    assert (shown.code, "was cleaned: its models and checkpoints are deleted" in shown.err) == (
        1, True,
    )  # fmt: skip
