"""Measurements that the README cites, each one a module to run."""
