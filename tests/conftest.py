"""What all tests share: Hypothesis does not judge speed, for machines are busy."""

from hypothesis import settings

settings.register_profile("arena", deadline=None)
settings.load_profile("arena")
