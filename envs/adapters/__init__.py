"""Adapters: environments of other libraries and conventions behind the common interface, one module for each kind.

``kinds`` lists them; an adapter takes the object as the package gives it.
"""
