"""Examples from what users have."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import ConcatDataset, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from consort.core.params import Params
from consort.data import items
from consort.data.dataset import Dataset
from consort.data.examples import Examples, Splits
from consort.data.registry import load_dataset
from consort.data.unread import Unread
from consort.errors import ConsortError, Failure, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.tasks import Classification, Supervised

X = torch.arange(24.0).view(8, 3)
Y = torch.tensor([0, 1, 0, 1, 1, 0, 1, 0])


class Squares(TorchDataset):
    """A data set of a user: one item at a time."""

    def __init__(self, count=8, shape=(3,)):
        self.count, self.shape, self.reads = count, shape, 0

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        self.reads += 1
        return torch.full(self.shape, float(place) ** 2), place % 2


class Noisy(Squares):
    """Random transforms, by each of the three generators."""

    def __getitem__(self, place):
        noise = random.random() + np.random.rand() + torch.rand(()).item()
        return torch.full(self.shape, noise), place % 2


def same(found: Examples, inputs: torch.Tensor, targets: dict[str, torch.Tensor]) -> None:
    assert torch.equal(found.loaded, inputs)
    assert found.loaded.dtype == inputs.dtype
    assert list(found.targets) == list(targets)
    for name, target in targets.items():
        assert torch.equal(found.targets[name], target)
        assert found.targets[name].dtype == target.dtype


# Arrays and tables


@pytest.mark.parametrize("pair", [
    (X, Y),
    (X.numpy(), Y.numpy()),
    (X.numpy().astype(np.float64), Y.numpy().astype(np.int32)),
    (X.tolist(), Y.tolist()),
    (X.numpy(), Y.numpy().astype(bool)),
])  # fmt: skip
def test_pairs_of_inputs_and_targets(pair):
    same(Examples.of(pair), X, {"target": Y})


def test_pairs_with_several_targets_and_several_inputs():
    found = Examples.of(({"a": X.numpy(), "b": X.numpy() + 1}, {"odd": Y, "size": X[:, 0]}))
    assert torch.equal(found.inputs["b"], X + 1)
    assert list(found.targets) == ["odd", "size"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"a": X[:, 0].tolist(), "b": X[:, 1].tolist(), "label": Y.tolist()})
    same(Examples.of(frame), X[:, :2], {"target": Y})
    same(Examples.of(frame, "label"), X[:, :2], {"label": Y})
    two = Examples.of(frame, ["b", "label"])
    same(two, X[:, :1], {"b": X[:, 1], "label": Y})
    member = Member.of({"label": Classification(2)}, "mlp", frame)
    assert member.example.shape == (2,)
    pair = Examples.of((frame[["a", "b"]], frame["label"]))
    same(pair, X[:, :2], {"target": Y})


def test_hugging_face_data_sets():
    datasets = pytest.importorskip("datasets")
    ids = [[1, 2, 3, place] for place in range(8)]
    columns = {"input_ids": ids, "attention_mask": [[1, 1, 1, 0]] * 8, "label": Y.tolist()}
    found = Examples.of(datasets.Dataset.from_dict(columns))
    assert torch.equal(found.inputs["input_ids"], torch.tensor(ids))
    assert torch.equal(found.targets["target"], Y)
    parts = datasets.DatasetDict({
        "train": datasets.Dataset.from_dict(columns), "test": datasets.Dataset.from_dict(columns),
    })  # fmt: skip
    splits = Splits.of(parts, ["topic"])
    assert [len(part) for part in splits.parts] == [7, 1, 8]
    assert list(splits.train.targets) == ["topic"]


def test_columns_of_rows_of_different_lengths_are_refused():
    with pytest.raises(UsageError) as caught:
        Examples.of({"ids": [[1, 2], [3]], "label": [0, 1]})
    assert str(caught.value) == "column 'ids' has rows of different lengths: pad them to one length"


@pytest.mark.parametrize(("columns", "targets", "message"), [
    ({"text": ["a", "b"], "label": [0, 1]}, (),
     "column 'text' holds text: turn it into numbers first, or leave it out"),
    ({"a": [1.0], "price": [2.0]}, (),
     "the data have the columns a, price: say which are targets, such as targets = 'price'"),
    ({"a": [1.0], "price": [2.0]}, "prize",
     "the data have no column 'prize': did you mean 'price'? (there are: a, price)"),
    ({"label": [1]}, (), "the data have targets only: add at least one column of inputs"),
])  # fmt: skip
def test_what_is_wrong_with_columns_is_one_sentence(columns, targets, message):
    with pytest.raises(UsageError) as caught:
        Examples.of(columns, targets)
    assert str(caught.value) == message


# Data sets of items


def test_a_torch_data_set_is_read_once():
    data = Squares()
    squares = torch.arange(8.0)[:, None].square().expand(8, 3)
    same(Examples.of(data), squares, {"target": torch.arange(8) % 2})
    assert data.reads == 2 * 8  # so few are read twice, to see whether they are random
    same(Examples.of(Subset(data, [5, 2])), squares[[5, 2]], {"target": torch.tensor([1, 0])})
    both = Examples.of(ConcatDataset([data, data]))
    assert len(both) == 16


def test_tensors_of_a_tensor_data_set_are_taken_as_they_are():
    whole = TensorDataset(X, Y)
    assert Examples.of(whole).inputs is X
    same(Examples.of(Subset(whole, [1, 7])), X[[1, 7]], {"target": Y[[1, 7]]})


def test_items_may_be_dicts_and_targets_dicts():
    rows = [{"ids": torch.tensor([place, 1]), "label": place % 2} for place in range(4)]
    found = Examples.of(rows)
    assert torch.equal(found.loaded, torch.tensor([[0, 1], [1, 1], [2, 1], [3, 1]]))
    pairs = [({"a": 1.0 * place}, {"x": place, "y": 0.5}) for place in range(4)]
    found = Examples.of(pairs)
    assert list(found.targets) == ["x", "y"]
    assert torch.equal(found.inputs["a"], torch.arange(4.0))


def test_a_large_data_set_is_read_when_batches_are_taken(monkeypatch):
    monkeypatch.setattr(items, "KEPT_BYTES", 10)
    data = Squares()
    found = Examples.of(data)
    assert isinstance(found.inputs, Unread)
    data.reads = 0
    part = found.take(torch.tensor([3, 1, 2]))
    assert data.reads == 0
    first, second = part.batches(2)
    assert torch.equal(first.inputs[:, 0], torch.tensor([9.0, 1.0]))
    assert torch.equal(second.targets["target"], torch.tensor([0]))
    assert data.reads == 3
    assert len(part) == 3
    assert part.nbytes == 3 * 8
    joined = Examples.concatenate([part, Examples(torch.zeros(1, 3), {"target": Y[:1]})])
    assert torch.equal(joined.tensor[:, 0], torch.tensor([9.0, 1.0, 4.0, 0.0]))
    assert torch.equal(joined.rows(2, 2).tensor[:, 0], torch.tensor([4.0, 0.0]))
    changed = part.changed(lambda inputs: inputs + 1)
    assert torch.equal(changed.tensor[:, 0], torch.tensor([10.0, 2.0, 5.0]))


def test_targets_of_a_large_data_set_come_from_its_attribute(monkeypatch):
    monkeypatch.setattr(items, "KEPT_BYTES", 10)
    data = Squares(100)
    data.targets = [place % 2 for place in range(100)]
    found = Examples.of(Subset(data, list(range(3, 50))))
    assert data.reads < 20
    assert torch.equal(found.targets["target"], torch.arange(3, 50) % 2)


def test_random_items_are_read_anew_and_depend_on_torchs_seed_alone():
    found = Examples.of(Noisy())
    assert isinstance(found.inputs, Unread)
    torch.manual_seed(3)
    one = found.tensor
    random.random(), np.random.rand()
    torch.manual_seed(3)
    again, other = found.tensor, found.tensor
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("large", [False, True])
def test_a_federation_of_torch_data_sets_is_that_of_tensors_bit_for_bit(monkeypatch, large):
    from consort.algorithms.fedavg import FedAvg

    inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    labels = (inputs.sum(1) > 0).long()

    class Own(Squares):
        def __getitem__(self, place):
            return inputs[place], labels[place]

    if large:
        monkeypatch.setattr(items, "KEPT_BYTES", 10)
    outcomes = []
    for data in ((inputs, labels), Own(40)):
        members = {name: Member.of(Classification(2), "mlp", data) for name in ("a", "b")}
        run = Run(Federation(members), FedAvg(), Schedule(rounds=2))
        run.go()
        outcomes.append(run.server.model)
    assert isinstance(outcomes[0], Params)
    assert outcomes[0].equals(outcomes[1])


@pytest.mark.parametrize(("data", "message"), [
    ([], "the list is empty: give it at least one item"),
    ([3, 4], "item 0 of the list is a int where a pair of inputs and target, or a dict, is"),
    ([(Image.new("L", (2, 2)), 0)],
     "item 0 is a PIL image: let the data set's transform make a tensor of it"),
    ([(torch.zeros(2), 0), (torch.zeros(3), 0)],
     "items differ in shape: resize or pad them to one shape"),
    (iter([1]), "a list_iterator is no data: give a pair of inputs and targets, a data frame, or"),
    (3, "a int is no data: give a pair"),
])  # fmt: skip
def test_what_is_wrong_with_items_is_one_sentence(data, message):
    with pytest.raises(UsageError) as caught:
        Examples.of(data)
    assert str(caught.value).startswith(message)


# Files and folders


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "pt"])
def test_tensors_on_disk(tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"
    {
        "npz": lambda: np.savez(path, inputs=X.numpy(), label=Y.numpy()),
        "safetensors": lambda: save_file({"inputs": X, "label": Y}, path),
        "pt": lambda: torch.save({"inputs": X, "label": Y}, path),
    }[suffix]()
    same(Examples.of(path), X, {"target": Y})
    same(Examples.of(str(path), "label"), X, {"label": Y})
    loaded = load_dataset("tensors", 0, tmp_path, path=path.name, targets=["label"])
    same(loaded.examples, X, {"label": Y})
    assert loaded.tasks == {"label": Classification(2)}


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"no")
    (tmp_path / "data.csv").write_text("a,b")
    torch.save([1], tmp_path / "list.pt")
    for name, error, message in [
        ("gone.npz", UsageError, "there is no file .*gone.npz"),
        ("data.csv", UsageError, "data.csv: a file of tensors ends in .npz, .safetensors, .pt"),
        ("broken.npz", Failure, "broken.npz cannot be read as a file of tensors"),
        ("list.pt", Failure, "list.pt holds a list where a dict of tensors is expected"),
    ]:
        with pytest.raises(error, match=message):
            Examples.of(tmp_path / name)


def test_a_file_with_code_is_not_run(tmp_path):
    torch.save({"inputs": X, "label": Squares()}, tmp_path / "code.pt")
    with pytest.raises(ConsortError, match="cannot be read as a file of tensors"):
        Examples.of(tmp_path / "code.pt")


@pytest.fixture
def photos(tmp_path):
    for number, name in enumerate(("cats", "dogs", "birds")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for place in range(4):
            colour = (60 * number, 10 * place, 200)
            Image.new("RGB", (10, 8), colour).save(tmp_path / "photos" / name / f"{place}.png")
    (tmp_path / "photos" / "dogs" / "notes.txt").write_text("not an image")
    return tmp_path / "photos"


def test_a_folder_of_images_has_one_class_per_folder(photos):
    dataset = load_dataset("image_folder", 0, photos.parent, path="photos", size=8)
    assert dataset.examples.tensor.shape == (12, 3, 8, 8)
    assert dataset.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4  # birds, cats, dogs
    assert dataset.tasks == {"classify": Classification(3)}
    assert dataset.examples.tensor[4, 0, 0, 0] == 0
    assert dataset.examples.tensor[8, 0, 0, 0] == 60
    assert Examples.of(photos).loaded.dtype == torch.float32
    grey = load_dataset("image_folder", 0, None, path=str(photos), size=8, mode="L")
    assert grey.example.shape == (1, 8, 8)


def test_many_images_are_decoded_when_they_are_needed(photos, monkeypatch):
    from consort.data import image_folder

    whole = load_dataset("image_folder", 0, None, path=str(photos), size=8)
    monkeypatch.setattr(image_folder, "KEPT_BYTES", 10)
    dataset = load_dataset("image_folder", 0, None, path=str(photos), size=8)
    assert isinstance(dataset.examples.inputs, Unread)
    some = torch.tensor([7, 2])
    assert torch.equal(dataset.examples.take(some).tensor, whole.examples.take(some).tensor)


def test_folders_that_are_not_such_are_named(photos):
    with pytest.raises(UsageError, match=r"image_folder: there is no folder nowhere: give it as"):
        load_dataset("image_folder", 0, None, path="nowhere")
    with pytest.raises(UsageError, match=r"cats has 0 folders: make one folder of images per cl"):
        load_dataset("image_folder", 0, None, path=str(photos / "cats"))
    (photos / "fish").mkdir()
    with pytest.raises(UsageError, match=r"fish has no image files \(png, tif, .*: add some, or"):
        load_dataset("image_folder", 0, None, path=str(photos))


# Splits, data sets and clients


def test_all_data_are_divided_into_three_stratified_splits():
    labels = torch.arange(40) % 2
    splits = Splits.of((torch.arange(40.0)[:, None], labels), ["odd"], seed=3)
    assert [len(part) for part in splits.parts] == [28, 6, 6]
    everything = torch.cat([part.tensor for part in splits.parts]).flatten()
    assert sorted(everything.tolist()) == list(range(40))
    assert int(splits.test.targets["odd"].sum()) == 3
    again = Splits.of((torch.arange(40.0)[:, None], labels), ["odd"], seed=3)
    assert torch.equal(again.test.tensor, splits.test.tensor)


def test_three_data_sets_are_three_splits():
    splits = Splits.of((TensorDataset(X, Y), (X[:2], Y[:2]), Squares(4)), ["odd"])
    assert [len(part) for part in splits.parts] == [8, 2, 4]
    assert all(list(part.targets) == ["odd"] for part in splits.parts)


def test_data_without_the_tasks_targets_are_refused():
    two = (X, {"a": Y, "b": Y})
    with pytest.raises(UsageError) as caught:
        Member.of({"c": Classification(2)}, "mlp", two)
    assert str(caught.value) == (
        "the data have no targets for task 'c': did you mean 'a'? (there are: a, b)"
    ) or "did you mean 'b'" in str(caught.value)
    with pytest.raises(UsageError, match="the data are divided into train: add test data"):
        Splits.of({"train": (X, Y)})


def test_a_data_set_says_its_tasks_or_is_told():
    dataset = Dataset.of((X, Y))
    assert dataset.tasks == {"target": Classification(2)}
    assert dataset.labels.tolist() == Y.tolist()
    price = Supervised("mse_loss", outputs=1)
    dataset = Dataset.of((X, X[:, 0]), price)
    assert dataset.tasks == {"target": price}
    assert not dataset.labels.any()
    with pytest.raises(UsageError) as caught:
        Dataset.of((X, X[:, 0]))
    assert str(caught.value) == (
        "the targets 'target' are no classes: say what the task is, such as tasks = "
        "Supervised(loss, outputs = 1)"
    )
