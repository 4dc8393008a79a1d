"""The engine: plan, fetch, decode, place."""
