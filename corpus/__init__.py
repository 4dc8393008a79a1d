"""Conformance cases: tiny inputs, what to do with them, and exactly what must come out.

A case is a folder of ``cases/``: input files, and a ``case.json`` that :file:`schema.json` describes.
``python -m corpus.run`` runs the cases on this library, or on any other implementation that is wrapped in
the few calls of :mod:`corpus.adapter`; ``python -m corpus.generate`` writes them again. What is expected is
worked out by the generator from the numbers it puts into the files. No reader is asked.
"""

from pathlib import Path

__all__ = ["CASES", "SCHEMA"]

#: The cases as committed.
CASES = Path(__file__).parent / "cases"
#: The JSON Schema of a case.
SCHEMA = Path(__file__).parent / "schema.json"
