"""The demonstration: real winds, four ranks, forward and adjoint, and a report of what was hidden."""
