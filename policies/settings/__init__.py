"""Settings of the built-in policies, as frozen models; without torch, so that the root can check a file.

Here: what several policies share, and settings of policies that have no folder of their own.
"""
