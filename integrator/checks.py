"""What can be wrong with a case's model before anything is opened: named by file, line and key.

A case file is read by ``earthsciio``, which knows no model; so what stands under ``model:`` is looked at
here, by whoever is about to run or plan the case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from earthsciio.shape import nearest
from earthsciio.yamltext import Document

from .models.setup import MODELS, TracerParameters

if TYPE_CHECKING:
    from earthsciio.declare import Case

__all__ = ["check_model"]


def check_model(case: Case) -> None:
    """Check the model a case names, its parameters, and the winds they name.

    Raises
    ------
    DeclarationError
        With file, line and key, and the nearest name there is.
    """
    doc = Document.read(case.file)
    if case.model is None:
        raise doc.error(("sources",), "the case names no model", hint="Add `model: {name: tracer, ...}`")
    if case.model.name not in MODELS:
        name = case.model.name
        raise doc.error(("model", "name"), f"there is no model {name!r}", hint=nearest(name, MODELS))
    at = ("model", "parameters")
    for key in case.model.parameters:
        if key not in TracerParameters.__struct_fields__:
            hint = nearest(key, TracerParameters.__struct_fields__)
            raise doc.error((*at, key), f"the model has no parameter {key!r}", hint=hint)
    try:
        parameters = msgspec.convert(dict(case.model.parameters), TracerParameters)
    except msgspec.ValidationError as error:
        raise doc.error(at, str(error), hint="`integrator run` needs u, v and step at least") from None
    for key in ("u", "v"):
        _check_wind(doc, case, (*at, key), *getattr(parameters, key))


def _check_wind(doc: Document, case: Case, at: Any, source: str, variable: str) -> None:
    if source not in case.sources:
        raise doc.error(at, f"there is no source {source!r}", hint=nearest(source, case.sources))
    declared = case.sources[source]
    if declared.variables and variable not in declared.variables:
        hint = nearest(variable, declared.variables)
        raise doc.error(at, f"source {source!r} has no variable {variable!r}", hint=hint)
    if declared.temporal is None:
        raise doc.error(at, f"source {source!r} is constant in time", hint="Declare its `temporal`")
