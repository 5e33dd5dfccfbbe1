"""Stable-Baselines3 by its defaults: ``... peers.defaults ALGORITHM ENVIRONMENT STEPS SEED EPISODES COPIES``.

One copy, as its documentation starts it, or several: then ``ppo`` takes as many transitions in an update. A further
argument ``normalized`` puts ``VecNormalize`` around them. The greedy return is that of ``evaluate_policy`` with
likeliest actions, and with the statistics of training.
"""

import time
from typing import Any

from benchmarks.peers.output import run_as_program, write_figures


def main(algorithm: str, environment: str, steps: str, seed: str, episodes: str, copies: str, form: str = "") -> None:
    """Train, evaluate, and write the returns and their times."""
    import gymnasium
    import stable_baselines3
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)
    count = int(copies)
    monitors = [Monitor(gymnasium.make(environment)) for _ in range(count)]
    envs: Any = DummyVecEnv([lambda monitor=monitor: monitor for monitor in monitors])
    judge: Any = DummyVecEnv([lambda: Monitor(gymnasium.make(environment))])
    if form == "normalized":
        envs = VecNormalize(envs)
        judge = VecNormalize(judge, training=False, norm_reward=False)
        judge.obs_rms = envs.obs_rms
    arguments = {"n_steps": 2048 // count} if algorithm == "ppo" else {}
    model = getattr(stable_baselines3, algorithm.upper())("MlpPolicy", envs, seed=int(seed), device="cpu", **arguments)
    began = time.time()  # as the monitors count
    model.learn(int(steps))
    seconds = time.time() - began
    greedy, _ = evaluate_policy(model, judge, n_eval_episodes=int(episodes))
    finished = sorted(
        (time - (began - monitor.t_start), value)
        for monitor in monitors
        for time, value in zip(monitor.get_episode_times(), monitor.get_episode_rewards(), strict=True)
    )
    times, returns = zip(*finished, strict=True)
    write_figures(greedy=float(greedy), returns=list(returns), times=list(times), **{"steps/s": int(steps) / seconds})


if __name__ == "__main__":
    run_as_program(main)
