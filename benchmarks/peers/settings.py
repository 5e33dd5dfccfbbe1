"""Settings of PPO that ours and every peer are trained with (see ``benchmarks.peers.training``)."""

import os

NAMED = "ARENA_BENCHMARK_SETTINGS"
"""Environment variable: ``sb3`` for the defaults of Stable-Baselines3, with its 2,048 steps taken by eight copies."""

COPIES, CLIP, VALUE, CUT = 8, 0.2, 0.5, 0.5
if os.environ.get(NAMED) == "sb3":
    HORIZON, BATCH, EPOCHS = 256, 64, 10
    RATE, FALLING, GAMMA, LAMBDA = 3e-4, False, 0.99, 0.95
else:
    HORIZON, BATCH, EPOCHS = 128, 256, 4
    RATE, FALLING, GAMMA, LAMBDA = 2e-3, True, 0.98, 0.9
