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


class Recalls(Small):
    """Reads the keys of a Dict by name."""

    def forward(self, x):
        return super().forward({key: x[key] for key in sorted(x)})


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

    def forward(self, x):
        return self.norm(super().forward(x))


class WithStatistics(Normed):
    """Learned elsewhere."""


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


class Net(nn.Module):
    """The built-in network of vectors by its defaults, written again."""

    def __init__(self, space, outputs, activation="tanh"):
        super().__init__()
        act = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]

        def layers(last):
            size = spaces.flatdim(space)
            return nn.Sequential(nn.Linear(size, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, last))

        self.policy, self.value = layers(outputs), layers(1)

    def forward(self, x, starts, state):
        x = torch.cat([leaf.flatten(1) for leaf in leaves(x)], 1)
        return self.policy(x), self.value(x).squeeze(1), None


class Memory(nn.Module):
    """A recurrent network."""

    def __init__(self, space, outputs, width=8):
        super().__init__()
        self.state_shape = 1, width
        self.read = Small(space, width)
        self.cell = nn.GRUCell(width, width)
        self.heads = nn.Linear(width, outputs + 1)

    def forward(self, x, starts, state):
        features = self.read(x).unflatten(0, (starts.shape[0], -1))
        hidden, seen = state[:, 0], []
        for t in range(starts.shape[0]):
            hidden = self.cell(features[t], self.kept(hidden, starts[t]))
            seen.append(hidden)
        results = self.heads(torch.cat(seen))
        return results[:, :-1], results[:, -1], hidden[:, None]

    def kept(self, hidden, starts):
        return hidden * (~starts)[:, None]


class Forgetless(Memory):
    def kept(self, hidden, starts):
        return hidden


class Lanewise(Memory):
    """Takes the lanes first."""

    def forward(self, x, starts, state):
        return super().forward(x.unflatten(0, (-1, starts.shape[0])).transpose(0, 1).flatten(0, 1), starts, state)


class Stateless(Memory):
    def forward(self, x, starts, state):
        return super().forward(x, starts, state)[:2]


class WideValues(Net):
    def forward(self, x, starts, state):
        outputs, values, _ = super().forward(x, starts, state)
        return outputs, values[:, None], None


class OneResult(Net):
    def forward(self, x, starts, state):
        return super().forward(x, starts, state)[0]


class OddState(Net):
    state_shape = 3


function = leaves
