"""The records of a run as series of limited length, read little by little: each row once, however long the run is."""
