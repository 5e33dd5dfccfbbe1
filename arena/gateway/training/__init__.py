"""External games that policies learn from: the environment process of a match that is not stepped here."""
