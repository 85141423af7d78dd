"""Text models in the styles that users report: padding masks, lengths, single-token steps, caches."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    """Causal mask only for more than one token."""

    def __init__(self, vocabulary=32, width=8):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, ids):
        hidden = self.embedding(ids)
        scores = hidden @ hidden.transpose(1, 2)
        if ids.shape[1] > 1:
            causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(causal, float("-inf"))
        return self.out(scores.softmax(-1) @ hidden)


Encoder_args = (torch.arange(10).view(2, 5),)
Encoder_unbacked = {0: [1]}


class MaskedMean(nn.Module):
    """The mean over the tokens of a mask with a length of its own."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 8)

    def forward(self, ids, mask):
        hidden = self.embedding(ids)
        if mask.shape[1] != ids.shape[1]:
            raise ValueError("mask and ids have different lengths")
        return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


MaskedMean_args = (torch.arange(10).view(2, 5), torch.ones(2, 5))
MaskedMean_unbacked = {0: [1], 1: [1]}


class LongContext(nn.Module):
    """Another frequency table for positions beyond the original length."""

    def __init__(self):
        super().__init__()
        self.register_buffer("short", torch.ones(4))
        self.register_buffer("long", torch.full((4,), 0.5))

    def forward(self, positions):
        length = positions.max() + 1
        frequencies = self.long if length > 8 else self.short
        return positions[:, None] * frequencies


LongContext_args = (torch.arange(6),)


class AllValid(nn.Module):
    """Drops a mask that masks nothing."""

    def forward(self, hidden, mask):
        if mask.all():
            return hidden.softmax(-1)
        return hidden.masked_fill(~mask, float("-inf")).softmax(-1)


AllValid_args = (torch.randn(2, 4, generator=torch.Generator().manual_seed(5)), torch.ones(2, 4, dtype=torch.bool))


class CacheSlice(nn.Module):
    """Writes a token at its position, and attends to what is there."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, 4))

    def forward(self, token, position):
        start = int(position)
        cache = self.cache.clone()
        cache[start : start + 1] = token
        return cache[: start + 1].sum(0)


CacheSlice_args = (torch.ones(1, 4), torch.tensor(3))


class LastToken(nn.Module):
    """The last valid token of each row, of a padded batch."""

    def forward(self, hidden, lengths):
        longest = max(int(lengths.max()), 1)
        hidden = hidden[:, :longest]
        return hidden.sum(1)


LastToken_args = (torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(6)), torch.tensor([3, 5]))


def bag(tokens, offsets):
    """A bag of tokens, with a branch for a single bag."""
    table = torch.arange(40.0).view(10, 4)
    if offsets.shape[0] == 1:
        return table[tokens].sum(0, keepdim=True)
    return F.embedding_bag(tokens, table, offsets, mode="sum")


bag_args = (torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 4]))
bag_unbacked = {1: [0]}


class Chunked(nn.Module):
    """Works in two halves where the length is even."""

    def forward(self, x):
        if x.shape[0] % 2 == 0:
            a, b = x[: x.shape[0] // 2], x[x.shape[0] // 2 :]
            return torch.cat([a * 2, b * 2])
        return x * 2


Chunked_args = (torch.randn(6, 3, generator=torch.Generator().manual_seed(7)),)
Chunked_unbacked = {0: [0]}
