"""Checks before any rank starts: what a run needs is built or read once, where a failure costs one sentence."""
