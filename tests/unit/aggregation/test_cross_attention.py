from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.aggregation.cross_attention import (
    MOST,
    AttentionShares,
    attend,
    attention,
)
from consort.core.params import Params

GOLDEN = torch.tensor([[0.5, -0.2], [0.1, 0.4], [-0.3, 0.3]])


def cross_attention(rows):
    """Every row's mixture of all rows, by softmax(V Vᵀ / √d) V."""
    return attention(rows) @ rows


def test_the_golden_numbers():
    expected = [[0.147656, 0.131879], [0.089069, 0.181249], [0.064259, 0.194096]]
    torch.testing.assert_close(cross_attention(GOLDEN), torch.tensor(expected), atol=1e-6, rtol=0)


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 99))
def test_everybody_attends_to_all_with_weights_of_sum_one(count, size, seed):
    rows = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    weights = attention(rows)
    torch.testing.assert_close(weights.sum(1), torch.ones(count))
    assert float(weights.min()) > 0


def test_one_alone_sees_itself_and_equals_see_themselves():
    torch.testing.assert_close(cross_attention(GOLDEN[:1]), GOLDEN[:1])
    same = GOLDEN[:1].expand(4, 2)
    torch.testing.assert_close(cross_attention(same), same)


def test_decoders_attend_across_clients_and_tasks_tensor_by_tensor():
    one = Params({"decoders.seg.a.weight": GOLDEN[:1], "decoders.seg.a.bias": torch.ones(1)})
    two = Params(
        {
            "decoders.seg.a.weight": GOLDEN[1:2],
            "decoders.seg.a.bias": torch.zeros(1),
            "decoders.depth.a.weight": GOLDEN[2:],
            "decoders.depth.a.bias": torch.tensor([-2.0]),
        }
    )
    seen = attend({"c0": one, "c1": two})
    weights = cross_attention(GOLDEN)
    biases = cross_attention(torch.tensor([[1.0], [0.0], [-2.0]]))
    torch.testing.assert_close(seen["c0"]["decoders.seg.a.weight"], weights[:1])
    torch.testing.assert_close(seen["c1"]["decoders.seg.a.weight"], weights[1:2])
    torch.testing.assert_close(seen["c1"]["decoders.depth.a.weight"], weights[2:])
    torch.testing.assert_close(seen["c0"]["decoders.seg.a.bias"], biases[0])
    torch.testing.assert_close(seen["c1"]["decoders.depth.a.bias"], biases[2])
    assert {client: found.shapes for client, found in seen.items()} == {
        "c0": one.shapes,
        "c1": two.shapes,
    }


def test_decoders_of_other_widths_attend_among_their_like():
    wide, narrow = torch.randn(2, 3), torch.randn(2, 2)
    updates = {
        "c0": Params({"decoders.seg.a.weight": wide}),
        "c1": Params({"decoders.seg.a.weight": narrow}),
        "c2": Params({"decoders.seg.a.weight": 2 * narrow}),
    }
    seen = attend(updates)
    torch.testing.assert_close(seen["c0"]["decoders.seg.a.weight"], wide)
    rows = torch.stack([narrow.flatten(), 2 * narrow.flatten()])
    expected = cross_attention(rows)[0].reshape(2, 2)
    torch.testing.assert_close(seen["c1"]["decoders.seg.a.weight"], expected)


def test_clients_without_decoders_see_nothing():
    assert attend({"c0": Params({})}) == {"c0": Params({})}
    assert len(attend({"c0": Params({})})["c0"]) == 0


@pytest.mark.parametrize("scale", [1e-3, 1e-6])
def test_small_updates_make_attention_even(scale):
    """Known weakness of the method: weights depend on the size of updates."""
    torch.testing.assert_close(
        attention(GOLDEN * scale), torch.full((3, 3), 1 / 3), atol=scale, rtol=0
    )


def regarded(updates):
    shares = AttentionShares()
    attend(updates, shares=shares)
    return shares.means()


def test_who_attends_to_whom_is_the_mean_over_tensors():
    biases = torch.tensor([[1.0], [0.0]])
    updates = {
        c: Params({"decoders.seg.a.weight": GOLDEN[i : i + 1], "decoders.seg.a.bias": biases[i]})
        for i, c in enumerate(("c0", "c1"))
    }
    expected = (attention(GOLDEN[:2]) + attention(biases)) / 2
    shares = regarded(updates)
    assert list(shares) == [f"c{i}/seg → c{j}/seg" for i in (0, 1) for j in (0, 1)]
    torch.testing.assert_close(torch.tensor(list(shares.values())), expected.flatten())


def test_who_shares_only_some_tensors_attends_the_less():
    """What a decoder has alone attends to itself, so its shares still have the sum 1."""
    updates = {
        "c0": Params({"decoders.seg.a": torch.zeros(2), "decoders.seg.b": torch.zeros(3)}),
        "c1": Params({"decoders.depth.a": torch.zeros(2)}),
    }
    assert regarded(updates) == {
        "c0/seg → c0/seg": 0.75,
        "c0/seg → c1/depth": 0.25,
        "c1/depth → c0/seg": 0.5,
        "c1/depth → c1/depth": 0.5,
    }


def test_of_many_decoders_only_tasks_are_told_apart():
    many = {
        f"c{i}": Params({f"decoders.{'seg' if i % 4 else 'depth'}.a": torch.zeros(2)})
        for i in range(MOST + 4)
    }
    shares = regarded(many)
    assert shares == pytest.approx(
        {"depth → depth": 0.5, "depth → seg": 0.5, "seg → depth": 0.5, "seg → seg": 0.5}
    )


def test_of_many_decoders_the_mean_of_a_task_counts_however_many_have_it():
    rows = {f"c{i}": torch.tensor([3.0 if i < 5 else 0.0]) for i in range(MOST + 6)}
    tasks = {client: "seg" if int(client[1:]) < 10 else "depth" for client in rows}
    updates = {c: Params({f"decoders.{tasks[c]}.a": row}) for c, row in rows.items()}
    weights = attention(torch.stack(list(rows.values())))[:10]
    seg, depth = float(weights[:, :10].mean()), float(weights[:, 10:].mean())
    shares = regarded(updates)
    assert shares["seg → seg"] == pytest.approx(seg / (seg + depth), rel=1e-5)
    assert shares["seg → seg"] + shares["seg → depth"] == pytest.approx(1)
    assert shares["depth → depth"] == pytest.approx(0.5)


def test_looking_changes_nothing():
    updates = {"c0": {"decoders.seg.a": GOLDEN[0]}, "c1": {"decoders.seg.a": GOLDEN[1]}}
    seen, watched = attend(updates), attend(updates, shares=AttentionShares())
    for client in updates:
        assert torch.equal(seen[client]["decoders.seg.a"], watched[client]["decoders.seg.a"])
