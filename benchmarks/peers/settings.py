"""Settings of PPO that ours and every peer are trained with (see ``benchmarks.peers.training``)."""

COPIES, HORIZON, BATCH, EPOCHS = 8, 128, 256, 4
RATE, GAMMA, LAMBDA, CLIP, VALUE, CUT = 2e-3, 0.98, 0.9, 0.2, 0.5, 0.5
