"""Forcing I/O: declare sources, cache their files, decode the windows a rank needs, ahead of the model."""
