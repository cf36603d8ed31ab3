from __future__ import annotations

import pytest
import torch

from consort.domains.text.textcnn import TextCnn
from consort.errors import UsageError
from consort.models.registry import parameter_count
from consort.tasks import Classification


def small(length: int = 12, **options) -> TextCnn:
    return TextCnn(length, **{"vocabulary": 30, "embedding": 6, "filters": 4, **options})


def tokens(length: int = 12) -> torch.Tensor:
    return torch.randint(1, 30, (5, length), generator=torch.Generator().manual_seed(3))


def test_parameters_with_a_head_are_those_of_pfllib_on_ag_news():
    encoder = TextCnn(200)
    head = Classification(4).head(encoder.width)
    assert encoder.width == 300
    assert parameter_count(encoder.embedding) == 16_384_000
    assert parameter_count(encoder.convolutions) == 512 * 100 * (3 + 4 + 5) + 300
    assert parameter_count(encoder) + parameter_count(head) == 16_999_904
    assert encoder.dropout.p == 0.8


def test_features_are_the_strongest_answer_of_each_filter_at_any_place():
    model = small().eval()
    words = model.embedding(tokens())
    expected = []
    for convolution, width in zip(model.convolutions, (3, 4, 5), strict=True):
        windows = words.unfold(1, width, 1)  # text, place, embedding, position in the window
        answers = torch.einsum("tpew,few->tpf", windows, convolution.weight) + convolution.bias
        expected.append(answers.clamp(min=0).amax(1))
    torch.testing.assert_close(model(tokens()), torch.cat(expected, 1))


def test_dropout_is_the_last_thing_and_works_in_training_only():
    model = small(dropout=0.5)
    torch.manual_seed(0)
    trained = model(tokens())
    kept = model.eval()(tokens())
    dropped = (trained == 0) & (kept > 0)
    assert dropped.any()
    torch.testing.assert_close(trained[~dropped], 2 * kept[~dropped])


def test_padding_is_a_zero_vector_that_never_learns():
    model = small()
    padded = tokens()
    padded[:, 6:] = 0
    model(padded).sum().backward()
    assert not model.embedding.weight[0].any()
    assert not model.embedding.weight.grad[0].any()
    assert model.embedding.weight.grad[padded[0, 0]].any()


def test_a_text_must_be_as_long_as_the_widest_kernel():
    assert small(5).eval()(tokens(5)).shape == (5, 12)
    with pytest.raises(UsageError, match="'kernels' has width 5, wider than a text of 4 tokens"):
        small(4)
    assert small(4, kernels=(2, 4)).eval()(tokens(4)).shape == (5, 8)


def test_a_token_outside_the_vocabulary_is_an_error_that_names_the_option():
    with pytest.raises(UsageError, match="to 30, but the model's option 'vocabulary' is 30"):
        small()(torch.full((1, 12), 30))


@pytest.mark.parametrize(
    "example", [torch.zeros(3, 32, 32), torch.zeros(20), torch.zeros(20).byte()]
)
def test_what_is_no_text_is_refused(example):
    with pytest.raises(UsageError, match="token ids"):
        TextCnn.measure(example)
