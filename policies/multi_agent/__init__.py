"""Off-policy algorithms for teams: centralised critics of all entities of a seat, and decentralised actors."""
