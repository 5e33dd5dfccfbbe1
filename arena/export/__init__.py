"""Policies as files for other runtimes: written, compared with the policy, and rejected if they differ."""

__all__: list[str] = []
