"""The environment process: it steps the copies of one environment and serves the seats of its match.

Here belong its loop, its jobs, its episodes, and the messages that it fills.
Not here: managers of copies (env_manager), and environments themselves (envs).
"""
