"""Policies that look closely at what their group does for them, with torch."""

import random

import numpy as np
import pytest
import torch


class Averages:
    """Averages gradients with its group; worker 1 stops after a few updates while the others continue.

    ``outputs`` has the sizes of networks whose gradients are averaged, all of them in each update.
    """

    def __init__(self, env, group, *, updates=30, early=5, outputs=(2,)):
        self.env, self.group, self.updates, self.early = env, group, updates, early
        self.models = [torch.nn.Linear(3, size) for size in outputs]
        for model in self.models:
            group.broadcast(model)

    def run(self, steps):
        group = self.group
        count = self.early if group.rank == 1 else self.updates
        with pytest.raises(TypeError, match="expected a float32 or float64 array, found int64"):
            group.sum_in_place(np.arange(3))
        self.env.reset()
        for update in range(count):
            _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
            if terminated or truncated:
                self.env.reset()
            for model in self.models:
                self._average(model, update)
            running = [rank for rank in range(group.size) if update < self.early or rank != 1]
            few = np.array([[update, group.rank, 0.5]], np.float32)
            group.sum_in_place(few)  # few enough to be added up by every worker
            assert few.tolist() == [[update * len(running), sum(running), 0.5 * len(running)]], few
            assert group.sum(group.rank + 0.25) == sum(running) + 0.25 * len(running)
            if update in (0, self.early):  # more than is summed at once, with all and without the one that is early
                assert (group.sum(np.arange(600_000.0)) == np.arange(600_000.0) * len(running)).all()
                assert (group.sum(np.ones(600_000)) == len(running)).all()
        for model in self.models:
            print(f"worker {group.rank} made {count} updates of {model.out_features} outputs", flush=True)

    def _average(self, model, update):
        group = self.group
        model.zero_grad()
        if update == self.early + 1:  # a gradient that is not finite spoils the update that it is for, and no other
            (model(torch.ones(1, 3)).sum() * float("nan")).backward()
            group.average_gradients(model)
            assert model.weight.grad.isnan().all()
            model.zero_grad()
        (model(torch.ones(1, 3)).sum() * (group.rank + 1)).backward()
        weights = [1] * group.size if update % 3 else [rank + 2 for rank in range(group.size)]
        group.average_gradients(model, weights[group.rank])
        if update >= self.early:
            weights[1] = 0
        gradient = torch.cat([model.weight.grad.reshape(-1), model.bias.grad])
        expected = np.average(np.arange(group.size) + 1, weights=weights)
        assert (gradient - expected).abs().max() < 1e-6, (update, gradient, expected)
        assert (gradient == gradient[0]).all()


class Looks:
    """Logs what differs between workers and rounds: random streams, and the handle of the group's communicator."""

    def __init__(self, env, group):
        self.env, self.group = env, group

    def run(self, steps):
        streams = np.zeros((self.group.size, 3))
        streams[self.group.rank] = random.random(), np.random.random(), float(torch.rand(()))  # noqa: NPY002
        streams = self.group.sum(streams)
        assert len(np.unique(streams)) == streams.size, streams
        handle = self.group.sum_in_place.__self__._comm.py2f()
        self.group.log(communicator=handle)
        self.env.reset()
        for _ in range(steps):
            _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
            if terminated or truncated:
                self.env.reset()
        print(f"communicator {handle}", flush=True)


class Logs:
    """Averages the gradients of two networks and logs, once after each hundredth of its steps."""

    def __init__(self, env, group):
        self.env, self.group = env, group
        self.models = [torch.nn.Linear(3, 1), torch.nn.Linear(3, 2)]

    def run(self, steps):
        self.env.reset()
        for update in range(100):
            for _ in range(steps // 100):
                _, _, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
                if terminated or truncated:
                    self.env.reset()
            for model in self.models:
                model(torch.ones(1, 3)).sum().backward()
                self.group.average_gradients(model)
            self.group.log(loss=update + self.group.rank)
            if self.group.rank == 0:
                self.group.log({"leading": 2.0 * update})
