"""A budget binds, also for a loop of one's own that ignores it."""

import re
import textwrap

import pytest

import arena
from tests.mpi.launching import run_arena, succeed

pytestmark = pytest.mark.rooms("worker", "comms")

LOOPS = """
    import torch

    class Endless:
        def __init__(self, env, group):
            self.env, self.group = env, group

        def run(self, steps):
            self.env.reset()
            while True:
                self.env.step(self.env.action_space.sample())

    class Learner(Endless):
        def run(self, steps):
            self.model = torch.nn.Linear(2, 1)
            self.group.broadcast(self.model)
            self.env.reset()
            try:
                self.learn_for_ever()
            finally:
                print("ended", self.group.rank, self.group.updates, self.model.weight.tolist(), flush=True)

        def learn_for_ever(self):
            for step in range(10**9):
                self.env.step(self.env.action_space.sample())
                if step % 40 == 39:
                    self.model(torch.full((1, 2), float(step + self.group.rank))).sum().backward()
                    self.group.average_gradients(self.model)
                    with torch.no_grad():
                        self.model.weight += 1e-4 * self.model.weight.grad
                    self.model.zero_grad()

        def state_dict(self):
            return self.model.state_dict()

        def load_state_dict(self, state):
            self.model.load_state_dict(state)
"""


def config(place, **uses):
    (place / "loops.py").write_text(textwrap.dedent(LOOPS))
    return {
        "steps": 3000,
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 2},
        "policies": {name: {"use": f"{place / 'loops.py'}:{use}"} for name, use in uses.items()},
        "matches": [{"seats": [name], "replicas": 2} for name in uses],
        "records": {"output": "terminal"},
    }


def test_a_loop_that_goes_on_ends_a_tenth_after_its_budget(tmp_path):
    """Under mpirun, since two workers must end at the same call of their group; those without calls end alone."""
    outcome = succeed(run_arena(tmp_path, config(tmp_path, endless="Endless", learner="Learner"), timeout=60))
    for name in ("endless", "learner"):
        assert outcome.output.count(f"run of '{name}' has taken") == 1, outcome.output
        finished = re.search(rf"{name} is finished after ([\d,]+) steps", outcome.output)
        assert finished is not None and 3000 <= int(finished[1].replace(",", "")) <= 3600, outcome.output
    ended = sorted(line for line in outcome.output.splitlines() if line.startswith("ended "))
    assert len(ended) == 2 and ended[0].split()[2:] == ended[1].split()[2:], "as many updates, and equal weights"
    assert arena.Run(outcome.directory).finished
