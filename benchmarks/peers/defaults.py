"""Stable-Baselines3 with its defaults: ``... benchmarks.peers.defaults ALGORITHM ENVIRONMENT STEPS SEED EPISODES``.

One copy, as its documentation starts it. The greedy return is that of ``evaluate_policy`` with likeliest actions.
"""

import time

from benchmarks.peers.output import run_as_program, write_figures


def main(algorithm: str, environment: str, steps: str, seed: str, episodes: str) -> None:
    """Train, evaluate, and write the returns and their times."""
    import gymnasium
    import numpy as np
    import stable_baselines3
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    monitor = Monitor(gymnasium.make(environment))
    model = getattr(stable_baselines3, algorithm.upper())("MlpPolicy", monitor, seed=int(seed), device="cpu")
    began = time.time()  # as the monitor counts
    model.learn(int(steps))
    seconds = time.time() - began
    greedy, _ = evaluate_policy(model, Monitor(gymnasium.make(environment)), n_eval_episodes=int(episodes))
    times = np.array(monitor.get_episode_times()) - (began - monitor.t_start)
    returns = monitor.get_episode_rewards()
    write_figures(greedy=float(greedy), returns=returns, times=times.tolist(), **{"steps/s": int(steps) / seconds})


if __name__ == "__main__":
    run_as_program(main)
