"""PPO by others, with equal settings: ``python -m benchmarks.peers.training PEER GAME STEPS SEED``.

8 copies, 128 steps, minibatches of 256, 4 epochs, Adam at 2e-3 (epsilon 1e-5) falling linearly, gamma 0.98, lambda 0.9,
clip 0.2, value coefficient 0.5, no clipping of values, no entropy bonus, gradients cut at 0.5, two layers of 64 tanh
units for policy and for value; the network of the Nature DQN paper for screens. (Sample Factory has no linear schedule:
its rate stays.) The rate is one with which Stable-Baselines3 reached 475 with each of 16 seeds; with 1e-3 it did with
21 of 30, and what the last episodes returned was a matter of luck. What they learn is read from ``games.Noted``.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.peers.games import training_game
from benchmarks.peers.output import run_as_program, write_figures
from benchmarks.peers.settings import BATCH, CLIP, COPIES, CUT, EPOCHS, FALLING, GAMMA, HORIZON, LAMBDA, RATE, VALUE


def _stable_baselines(game: str, steps: int, seed: int, subprocesses: bool = False, threads: int = 1) -> None:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    torch.set_num_threads(threads)
    makers = [partial(training_game, game)] * COPIES
    envs = SubprocVecEnv(makers, start_method="fork") if subprocesses else DummyVecEnv(makers)
    PPO(
        "CnnPolicy" if game == "pong" else "MlpPolicy",
        envs,
        learning_rate=(lambda left: RATE * left) if FALLING else RATE,
        n_steps=HORIZON,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        clip_range=CLIP,
        vf_coef=VALUE,
        max_grad_norm=CUT,
        seed=seed,
        device="cpu",
    ).learn(steps)
    envs.close()


def _cleanrl(game: str, steps: int, seed: int) -> None:
    from benchmarks.peers.cleanrl_algorithm import train

    train(partial(training_game, game), steps, seed)


def _for_sample_factory(game: str, *_: Any, **__: Any) -> Any:
    return training_game(game)  # at the top of the module, because its workers unpickle it


def _sample_factory(game: str, steps: int, seed: int) -> None:
    import tempfile

    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import run_rl

    register_env("noted", partial(_for_sample_factory, game))
    settings: dict[str, Any] = {
        "env": "noted",
        "experiment": "benchmark",
        "train_dir": tempfile.mkdtemp(prefix="arena-benchmark-"),
        "device": "cpu",
        "seed": seed,
        "num_workers": 2,
        "num_envs_per_worker": COPIES // 2,
        "rollout": HORIZON,
        "recurrence": 1,
        "use_rnn": False,
        "batch_size": BATCH,
        "num_batches_per_epoch": COPIES * HORIZON // BATCH,
        "num_epochs": EPOCHS,
        "learning_rate": RATE,
        "gamma": GAMMA,
        "gae_lambda": LAMBDA,
        "ppo_clip_ratio": CLIP,
        "value_loss_coeff": VALUE,
        "exploration_loss_coeff": 0.0,
        "max_grad_norm": CUT,
        "adam_eps": 1e-5,
        "nonlinearity": "tanh",
        "actor_critic_share_weights": game == "pong",
        "normalize_input": False,
        "normalize_returns": False,
        "train_for_env_steps": steps,
        "save_every_sec": 10**6,
    }
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    if game != "pong":
        arguments += ["--encoder_mlp_layers", "64", "64"]
    parser, _ = parse_sf_args(argv=arguments)
    run_rl(parse_full_cfg(parser, argv=arguments))


def _rllib(game: str, steps: int, seed: int) -> None:
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    register_env("noted", lambda _: training_game(game))
    network = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=game == "pong")
    if game == "pong":
        network = DefaultModelConfig(
            conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]], head_fcnet_hiddens=[512], vf_share_layers=True
        )
    algorithm = (
        PPOConfig()
        .environment("noted")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=COPIES // 2, rollout_fragment_length=HORIZON)
        .rl_module(model_config=network)
        .training(
            train_batch_size_per_learner=COPIES * HORIZON,
            minibatch_size=BATCH,
            num_epochs=EPOCHS,
            lr=[[0, RATE], [steps, 0.0]],
            gamma=GAMMA,
            lambda_=LAMBDA,
            clip_param=CLIP,
            vf_loss_coeff=VALUE,
            vf_clip_param=float("inf"),
            entropy_coeff=0.0,
            use_kl_loss=False,
            grad_clip=CUT,
        )
        .debugging(seed=seed)
        .build_algo()
    )
    for _ in range(-(-steps // (COPIES * HORIZON))):
        algorithm.train()
    ray.shutdown()


PEERS: dict[str, Callable[[str, int, int], None]] = {
    "sb3": _stable_baselines,
    "sb3_threads": partial(_stable_baselines, threads=2),
    "sb3_subproc": partial(_stable_baselines, subprocesses=True),
    "cleanrl": _cleanrl,
    "sample_factory": _sample_factory,
    "rllib": _rllib,
}


def main(peer: str, game: str, steps: str, seed: str) -> None:
    """Train."""
    began = time.time()
    PEERS[peer](game, int(steps), int(seed))
    write_figures(**{"seconds with start-up": time.time() - began})


if __name__ == "__main__":
    run_as_program(main)
