"""Encoders of observations, one for each kind of leaf, and one for nested spaces."""
