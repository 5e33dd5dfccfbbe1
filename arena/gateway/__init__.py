"""Games outside ask trained players over HTTP: the server, its sessions, users' actors, batches of forward passes.

What the server serves it is handed: files of runs are read by ``evaluation``, and only ``process`` will know of MPI.
"""
