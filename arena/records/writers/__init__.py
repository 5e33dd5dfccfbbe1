"""Writers of a run's records: rows of the database, and TensorBoard's event files. The root has them."""
