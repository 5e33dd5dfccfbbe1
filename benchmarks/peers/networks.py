"""Networks of a requested size; requires torch only."""

from torch import nn


def network(parameters: int) -> nn.Module:
    """Return a perceptron with about this many parameters, in as many tensors as policies of that size have.

    Up to 100,000 parameters: two hidden layers for actor and critic apart; above: six layers of equal width.
    """
    layers: list[nn.Module] = []
    if parameters <= 100_000:
        width = int((parameters / 2) ** 0.5)
        for outputs in (4, 1):
            layers += [nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, outputs)]
    else:
        width = int((parameters / 6) ** 0.5)
        layers += [nn.Linear(width, width) for _ in range(6)]
    return nn.Sequential(*layers)
