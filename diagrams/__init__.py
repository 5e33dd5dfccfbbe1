"""The six pictures of the arena's structure: one module each, rendered by ``python -m diagrams.build``."""
