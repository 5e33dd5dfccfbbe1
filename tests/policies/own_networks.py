"""Encoders as users write them."""

import math

import torch
from gymnasium import spaces
from torch import nn


def leaves(tree):
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    return [leaf for value in tree for leaf in leaves(value)] if isinstance(tree, tuple) else [tree]


class Flat(nn.Module):
    """The built-in encoder of vectors, written again; it takes any nest of Boxes."""

    def __init__(self, space):
        super().__init__()
        self.width = spaces.flatdim(space)

    def forward(self, x):
        return torch.cat([leaf.flatten(1) for leaf in leaves(x)], 1)


class Small(nn.Module):
    """A layer with weights on any nest of Boxes and Discrete."""

    def __init__(self, space, width=6, scale=1.0):
        super().__init__()
        self.width, self.scale = width, scale
        self.layer = nn.Linear(sum(math.prod(leaf.shape) for leaf in leaves(flat_spaces(space))), width)

    def forward(self, x):
        numbers = [leaf.reshape(leaf.shape[0], -1).float() for leaf in leaves(x)]
        return torch.tanh(self.layer(torch.cat(numbers, 1) / 50) * self.scale)


def flat_spaces(space):
    if isinstance(space, spaces.Dict):
        return {key: flat_spaces(leaf) for key, leaf in space.spaces.items()}
    return tuple(map(flat_spaces, space.spaces)) if isinstance(space, spaces.Tuple) else space


class Words(nn.Module):
    """Embeddings of whole numbers, which must arrive as such."""

    width = 8

    def __init__(self, space):
        super().__init__()
        self.table = nn.Embedding(int(space.high.max()) + 1, 8)

    def forward(self, x):
        return self.table(x).mean(1)


class Lazy(nn.Module):
    width = 4

    def __init__(self, space):
        super().__init__()
        self.layer = nn.LazyLinear(4)

    def forward(self, x):
        return self.layer(x)


class Dropped(Small):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


class WithoutWidth(nn.Module):
    def __init__(self, space):
        super().__init__()


class TooNarrow(Flat):
    def forward(self, x):
        return super().forward(x)[:, 1:]


class Infinite(Flat):
    def forward(self, x):
        return super().forward(x) / 0


class Whole(Flat):
    def forward(self, x):
        return super().forward(x).long()


class Pair(Flat):
    def forward(self, x):
        return super().forward(x), None


class Normed(Small):
    def __init__(self, space):
        super().__init__(space)
        self.norm = nn.BatchNorm1d(6)


class Centred(Small):
    def forward(self, x):
        features = super().forward(x)
        return features - features.mean(0)


class Counting(Small):
    def __init__(self, space):
        super().__init__(space)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Idle(Small):
    def __init__(self, space):
        super().__init__(space)
        self.drop = nn.Dropout(0.1)
        self.idle = nn.Linear(2, 2)


class Fails(Small):
    def forward(self, x):
        raise RuntimeError("mat1 and mat2 do not fit")


function = leaves
