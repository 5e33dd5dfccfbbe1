"""The page of a run in a browser: a server that reads run directories, and its front end.

Here belongs what answers a browser: which runs there are, their curves, their league, their machine.
Not here: the records themselves (records), and pictures for a terminal or a file (report).
"""
