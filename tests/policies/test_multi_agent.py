"""If these fail, teams learn from wrong values or gradients, and a user sees it by returns that stay low only."""

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Team
from arena.experience.rollout import Rollout
from arena.policies.loader import build
from arena.policies.local import Alone, Lockstep
from arena.policies.multi_agent.kinds import TeamKind

STATE = gym_spaces.Box(-1, 1, (3,), np.float32)
OWN = gym_spaces.Box(-1, 1, (2,), np.float32)
BOX = gym_spaces.Box(-1, 1, (1,), np.float32)
ACTIONS = {
    "box": gym_spaces.Box(np.array([-2.0, 0.0]), np.array([1.0, 10.0]), (2,), np.float64),
    "discrete": gym_spaces.Discrete(4, start=2),
    "multi-discrete": gym_spaces.MultiDiscrete([2, 3]),
}
COPIES = 2
CASES = [(use, action, share) for use in ("maddpg", "masac") for action in ACTIONS for share in ("auto", "each")]


def spaces(*actions, masked=False, observation=OWN):
    """Return the spaces of a team with these actions, for the lanes of its first kind."""
    entities = []
    for number, action in enumerate(actions):
        flags = 0
        if masked:
            flags = int(action.n) if isinstance(action, gym_spaces.Discrete) else int(action.nvec.sum())
        entities.append(EntitySpaces(f"a{number}", observation, action, flags, STATE))
    team = Team(tuple(entities), ()).kinds()[0]
    return entities[0]._replace(team=team)


def make(use, team, seed=0, lanes=None, **settings):
    usual = {"hidden": [16], "batch_size": 16, "warmup": 8, "horizon": 8, "ratio": 1.0}
    lanes = COPIES * len(team.team.positions) if lanes is None else lanes
    return build(use, team, {**usual, **settings}, lanes=lanes, seed=seed)


def rows_of(policy, count=16, seed=0):
    """Return joint rows of noise, of entities that are all present."""
    random, dtype = np.random.default_rng(seed), policy.feed._transitions.dtype
    rows = np.zeros(count, dtype)
    for name in dtype.names:
        column = rows[name]
        if column.dtype.kind == "f":
            column[...] = random.normal(size=column.shape) * 0.5
        elif column.dtype.kind == "i":
            column[...] = random.integers(0, 2, column.shape)
    rows["present"] = rows["next_present"] = True
    rows["discount"] = 0.9
    for name in dtype.names:
        if name.endswith("mask"):
            rows[name] = 1
    return rows


def gradients(policy, rows, weights=None):
    """Return the gradients of one step by network."""
    policy.gradient.join(Alone())
    policy.gradient.zero()
    policy._differentiate(rows, weights)
    return {name: array.copy() for name, array in policy._gradients.items()}


def fill(policy, rollout, seed=0, gone=()):
    """Fill a rollout with noise; entities whose place is in ``gone`` never act."""
    random, lanes = np.random.default_rng(seed), rollout.lanes
    no = np.zeros(lanes, bool)
    acting = ~np.isin(np.arange(lanes) % (lanes // COPIES), gone)
    for slot in range(rollout.horizon + 1):
        seen = random.normal(size=(lanes, 2)).astype(np.float32)
        state = np.repeat(random.normal(size=(COPIES, 3)).astype(np.float32), lanes // COPIES, 0)
        rewards = random.normal(size=lanes) * acting
        rollout.observe(slot, slice(0, lanes), seen, rewards, no, no, acting, no, None, no, state)
        if slot < rollout.horizon:
            rollout.decide(slot, slice(0, lanes), policy.act(seen, lanes=slice(0, lanes), learning=True))
    return rollout


def rollout_of(policy, lanes=None):
    lanes = COPIES * len(policy._spaces.team.positions) if lanes is None else lanes
    return Rollout(policy._spaces, policy.extras, horizon=policy.horizon, lanes=lanes)


@pytest.mark.parametrize(("use", "action", "share"), CASES)
def test_a_team_learns_and_goes_on_from_its_state_with_every_kind_of_action(use, action, share):
    team = spaces(*[ACTIONS[action]] * 3)
    policies = [make(use, team, share=share, priority=0.6) for _ in range(2)]
    for number in range(3):
        metrics = policies[0].learn(fill(policies[0], rollout_of(policies[0]), number), Alone())
    assert metrics["gradient_steps"] == 48 and np.isfinite(list(metrics.values())).all()
    policies[1].load_state_dict(policies[0].state_dict())
    policies[1].load_worker_state(policies[0].worker_state())
    policies[1].load_replay_state({name: array.copy() for name, array in policies[0].replay_state().items()})
    for policy in policies:
        policy.learn(fill(policy, rollout_of(policy), 9), Alone())
    first, second = (policy.state_dict() for policy in policies)
    assert all(torch.equal(first[name], second[name]) for name in first)
    actions = policies[0].act(np.zeros((6, 2), np.float32), lanes=slice(0, 6), deterministic=True).actions
    assert all(ACTIONS[action].contains(one) for one in actions)


@pytest.mark.parametrize("use", ["maddpg", "masac"])
@pytest.mark.parametrize("share", ["auto", "each"])
def test_a_policy_without_a_global_state_acts_like_the_one_that_learned(use, share):
    team = spaces(*[ACTIONS["box"]] * 3)
    learned = make(use, team, share=share)
    evaluated = make(use, team._replace(global_state=None), seed=5, share=share)
    evaluated.load_weights(learned.weights())
    seen = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    expected = learned.act(seen, lanes=slice(0, 6), deterministic=True).actions
    assert np.array_equal(evaluated.act(seen, lanes=slice(0, 6), deterministic=True).actions, expected)
    lanes = np.array([4, 1, 2])  # those of an opponent in a league
    assert np.allclose(evaluated.act(seen[lanes], lanes=lanes, deterministic=True).actions, expected[lanes])
    lone = make(use, team._replace(global_state=None, team=Team(team.team.entities, (1,))), lanes=1, share=share)
    lone.load_weights(learned.weights())  # an entity that is served alone
    assert np.allclose(lone.act(seen[4:5], deterministic=True).actions, expected[4:5])
    with pytest.raises(ConfigError, match="expects a global state while it learns"):
        evaluated.learn(None, Alone())


# The known bugs of published implementations. Each of these fails where the bug is planted.


class Product(torch.nn.Module):
    """A critic whose values are known: entity e is worth the sum of all actions, times e + 1."""

    def forward(self, kind, state, present, actions):
        total = actions.sum(-1)
        total = total[:, None].expand(-1, kind.entities) if total.dim() == 1 else total
        return (total * (1.0 + torch.arange(kind.entities)))[:, :, None] + 0 * present.sum()


@pytest.mark.parametrize("use", ["maddpg", "masac"])
def test_the_gradient_of_a_critic_reaches_the_action_of_its_own_entity_only(use):
    """Through all actions, each entity would follow the sum of all critics, here 1 + 2 + 3 times one action's."""
    policy = (
        make(use, spaces(BOX, BOX, BOX), share="each", entropy_coefficient=1e-9)
        if use == "masac"
        else make(use, spaces(BOX, BOX, BOX), share="each")
    )
    rows = rows_of(policy)
    policy.critics = torch.nn.ModuleList([Product(), Product()])
    batch = policy._batch(rows)
    loss = policy._actor_loss(batch) if use == "maddpg" else policy._actor_loss(batch, torch.zeros(3))[0]
    loss.backward()
    for entity, network in enumerate(policy.learned["network"]):
        own = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
        outputs = network(torch.from_numpy(rows["0.observation.0"][:, entity].copy()))
        if use == "maddpg":
            action = outputs.tanh()
        else:
            action = torch.tanh(outputs[:, :1] + outputs[:, 1:].exp() * batch.noise[0][1][:, entity])
        expected = torch.autograd.grad(-(entity + 1.0) * action.sum() / (16 * 3), list(network.parameters()))
        for got, reference in zip(own.values(), expected, strict=True):
            assert torch.allclose(got, reference, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_target_actions_are_those_of_the_target_actors(compiled):
    policy = make("maddpg", spaces(BOX, BOX))
    policy._compiled = policy._compiled if compiled else None
    rows = rows_of(policy)
    before = gradients(policy, rows)["critics"]
    with torch.no_grad():
        policy.optimizers["network"].parameters.mul_(-3)
    assert np.array_equal(gradients(policy, rows)["critics"], before)
    with torch.no_grad():
        policy._followers["network"].mul_(-3)
    assert not np.allclose(gradients(policy, rows)["critics"], before)


@pytest.mark.parametrize("action", ["discrete", "multi-discrete"])
def test_critics_read_discrete_actions_at_the_corners_of_the_simplex_only(action):
    """Soft samples lie inside of it, where no stored action ever lies."""
    policy, seen = make("maddpg", spaces(*[ACTIONS[action]] * 2, masked=True)), []
    policy._compiled = None  # torch: the inputs of its critics can be seen
    rows = rows_of(policy)
    rows["0.mask"][:, :, 1] = rows["0.next_mask"][:, :, 1] = 0
    for critics in (policy.critics, policy.target_critics):
        for critic in critics:
            critic.register_forward_hook(lambda module, inputs, output: seen.append(inputs[3].detach()))
    logits = policy.actors.module.layers[-1]
    torch.nn.init.normal_(logits.weight)
    policy._differentiate(rows, None)
    choices = 1 if action == "discrete" else 2
    assert len(seen) == 5  # two targets, two critics, and one that the actors follow
    for actions in seen:
        each = actions.unflatten(-1, (2, -1))
        near = (each - each.round()).abs().max()
        assert near < 1e-6 and (each.round().sum(-1) == choices).all()
    assert (seen[0].unflatten(-1, (2, -1))[..., 1] == 0).all()  # a forbidden action is never drawn
    assert policy._gradients["network"].any()


@pytest.mark.parametrize("use", ["maddpg", "masac"])
@pytest.mark.tier("default")
def test_an_episode_that_is_cut_by_time_is_worth_what_follows(use):
    """Rewards of 1 with a discount of one half are worth 2; episodes of four steps taken for ends, 1.5 on average."""
    settings = {"entropy_coefficient": 1e-6} if use == "masac" else {"exploration_noise": 0.0}
    policy = make(use, spaces(BOX, BOX), gamma=0.5, learning_rate=1e-2, target_average=0.2, ratio=4, **settings)
    lanes, no = 2 * COPIES, np.zeros(2 * COPIES, bool)
    rollout, time = rollout_of(policy), 0
    seen, state = np.ones((lanes, 2), np.float32), np.ones((lanes, 3), np.float32)
    for number in range(10):
        for slot in range(0 if number == 0 else 1, 9):
            place = time % 5  # 0 is a start, 4 a cut
            cut, rewards = ~no if place == 4 else no, np.full(lanes, float(place > 0))
            starts = ~no if place == 0 else no
            rollout.observe(slot, slice(0, lanes), seen, rewards, no, cut, ~cut, starts, None, no, state)
            time += 1
            if slot < 8:
                rollout.decide(slot, slice(0, lanes), policy.act(seen, lanes=slice(0, lanes), learning=True))
        if number:
            starts = rollout.starts[0]
        metrics = policy.learn(rollout, Alone())
        rollout.begin()
    assert abs(metrics["q"] - 2) < 0.15


@pytest.mark.parametrize("use", ["maddpg", "masac"])
def test_a_reward_of_the_team_counts_once_for_each_entity(use):
    """With shared parameters, one value for each entity learns its own reward: 1, not the 3 of the whole team."""
    policy = make(use, spaces(BOX, BOX, BOX))
    rows = rows_of(policy, 64)
    rows["reward"], rows["discount"] = 1.0, 0.0
    policy.gradient.join(Alone())
    for _ in range(150):
        policy._differentiate(rows, None)
        _, moves = policy._moves[len(policy.learned) - 1]
        for optimizer, gradient in moves:
            optimizer.step(gradient, 1e-2)
    assert abs(float(policy._losses[2]) - 1) < 0.05


@pytest.mark.parametrize("use", ["maddpg", "masac"])
@pytest.mark.parametrize("action", list(ACTIONS))
def test_what_an_absent_entity_observes_or_earns_changes_nothing(use, action):
    policy = make(use, spaces(*[ACTIONS[action]] * 3))
    rows = rows_of(policy)
    rows["present"][:, 1] = rows["next_present"][:, 1] = False
    state = policy.worker_state()
    before = gradients(policy, rows)
    random = np.random.default_rng(7)
    for name in ("0.observation.0", "0.next.0", "0.choice", "reward", "discount"):
        rows[name][:, 1] = random.integers(0, 2, rows[name][:, 1].shape)
    policy.load_worker_state(state)
    after = gradients(policy, rows)
    for name in before:
        assert np.allclose(before[name], after[name], atol=1e-7)


def test_only_noise_of_its_own_moves_an_entity():
    """One noise for all entities would explore the diagonal only."""
    policy = make("maddpg", spaces(BOX, BOX, BOX), warmup=0)
    policy.feed.pace.free = -1  # as after the warm-up
    choice = policy.act(np.zeros((6, 2), np.float32), lanes=slice(0, 6), learning=True).extras["choice"]
    assert len(np.unique(choice)) == 6


@pytest.mark.parametrize("use", ["maddpg", "masac"])
def test_two_workers_learn_like_one_that_has_the_copies_of_both(use):
    """Equal numbers of gradient steps, and equal weights on all workers."""
    policies = [make(use, spaces(*[ACTIONS["discrete"]] * 3)) for _ in range(2)]

    def work(group):
        policy = policies[group.rank]
        for number in range(4):
            metrics = policy.learn(fill(policy, rollout_of(policy), 10 * group.rank + number), group)
        return metrics["gradient_steps"], policy.state_dict()

    (first, state), (second, other) = Lockstep(2).run(work)
    assert first == second == 8 * COPIES * 2 * 4
    assert all(torch.equal(state[name], other[name]) for name in state)


@pytest.mark.parametrize("action", list(ACTIONS))
@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
def test_the_compiled_path_has_the_gradients_of_torch(action, twin, weighted, normalised):
    team = spaces(*[ACTIONS[action]] * 3, masked=action != "box")
    settings = {"twin": twin, "target_noise": 0.3, "priority": 0.6, "logit_penalty": 0.1, "activation": "tanh"}
    settings["normalize_observations"] = normalised
    compiled, plain = (make("maddpg", team, **settings) for _ in range(2))
    rows = rows_of(compiled)
    rows["present"][:5, 1] = rows["next_present"][:7, 2] = False
    for name in ("0.mask", "0.next_mask"):
        if name in rows.dtype.names:
            rows[name][:, :, 1] = 0
    weights = np.linspace(0.2, 1, 16, dtype=np.float32) if weighted else None
    assert compiled._compiled is not None
    plain._compiled, errors = None, []
    for policy in (compiled, plain):
        policy.feed.set_errors = errors.append
        policy._measure(rows, Alone())
        with torch.no_grad():
            for target in policy._followers.values():
                target.mul_(-0.5)
    found, expected = (gradients(policy, rows, weights) for policy in (compiled, plain))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(compiled._losses, plain._losses, rtol=1e-4, atol=1e-6)
    if weighted:
        np.testing.assert_allclose(*errors, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("use", ["maddpg", "masac"])
def test_entities_with_different_spaces_learn_together(use):
    """The gradients of a team with two kinds are finite, and reach every actor."""
    speaker = EntitySpaces("speaker", gym_spaces.Box(-1, 1, (3,), np.float32), gym_spaces.Discrete(3), 0, STATE)
    listener = EntitySpaces("listener", gym_spaces.Box(-1, 1, (5,), np.float32), BOX, 0, STATE)
    team = Team((speaker, listener, listener._replace(name="other")), ()).kinds()[0]
    policy = make(use, speaker._replace(team=team))
    rows = rows_of(policy)
    assert rows["1.observation.0"].shape == (16, 2, 5)
    found = gradients(policy, rows)
    assert all(np.isfinite(array).all() for array in found.values())
    for network in policy.learned["network"]:
        assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_the_straight_through_gradient_is_that_of_the_softmax():
    kind = TeamKind(
        0, spaces(ACTIONS["multi-discrete"]).team, 0, "maddpg", "white", lanes=1, device=torch.device("cpu")
    )
    logits = torch.randn(4, 1, 5, requires_grad=True)
    gumbel, upstream = torch.randn(4, 1, 5), torch.randn(4, 1, 5)
    (found,) = torch.autograd.grad((kind.straight_through(logits, gumbel) * upstream).sum(), logits)
    soft = torch.cat([part.softmax(2) for part in (logits + gumbel).split([2, 3], 2)], 2)
    (expected,) = torch.autograd.grad((soft * upstream).sum(), logits)
    assert torch.allclose(found, expected)
