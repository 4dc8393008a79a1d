"""Everything that knows MPI or time stepping: partition, scatter, halo, sweeps and reference models."""
