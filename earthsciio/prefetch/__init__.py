"""Decode the next epochs while the model computes."""
