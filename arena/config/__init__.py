"""The YAML file as validated, frozen models, and its schema.

Here belongs every key of the file: its type, default, limits and error message.
Not here: what follows from it, which is plan's.
"""
