"""Policies as files that others run: made, compared with the policy, and refused where they differ."""

__all__: list[str] = []
