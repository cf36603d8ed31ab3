"""The convolutional text classifier of Kim (2014), in the sizes of PFLlib (`TextCNN`)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from consort.errors import UsageError
from consort.models.inputs import token_count


class TextCnn(nn.Module):
    """Word embeddings, convolutions over 3, 4 and 5 words, and max pooling over the text.

    Token 0 is padding.

    Args:
        length: The number of tokens of a text.
        vocabulary: The number of token ids.
        embedding: The width of the word embeddings.
        filters: The number of filters of each kernel width.
        kernels: The kernel widths, in words.
        dropout: The probability of dropping a feature.

    Raises:
        UsageError: If a kernel is wider than a text.
    """

    measure = staticmethod(token_count)

    def __init__(
        self,
        length: int,
        vocabulary: PositiveInt = 32_000,
        embedding: PositiveInt = 512,
        filters: PositiveInt = 100,
        kernels: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (3, 4, 5),
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.8,
    ) -> None:
        super().__init__()
        if max(kernels) > length:
            raise UsageError(
                f"its option 'kernels' has width {max(kernels)}, wider than a text of {length} "
                "tokens; take narrower kernels or longer texts"
            )
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, filters, k) for k in kernels)
        self.dropout = nn.Dropout(dropout)
        self.width = filters * len(kernels)

    def forward(self, tokens: Tensor) -> Tensor:
        """The features of a batch of `tokens`.

        Raises:
            UsageError: If a token id is not in the vocabulary.
        """
        words = self._look_up(tokens).transpose(1, 2)
        strongest = [convolve(words).max(2).values for convolve in self.convolutions]
        features: Tensor = self.dropout(F.relu(torch.cat(strongest, 1)))
        return features

    def _look_up(self, tokens: Tensor) -> Tensor:
        try:
            words: Tensor = self.embedding(tokens)
        except IndexError as error:
            raise UsageError(
                f"a text has token ids from {int(tokens.min())} to {int(tokens.max())}, but the "
                f"model's option 'vocabulary' is {self.embedding.num_embeddings}; set it higher"
            ) from error
        return words
