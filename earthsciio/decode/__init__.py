"""The engine: plan, fetch, decode, place."""

from .reference import ArrayRequest
from .run import DecodeReport, decode_arrays

__all__ = ["ArrayRequest", "DecodeReport", "decode_arrays"]
