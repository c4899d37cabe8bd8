"""The data layer: frames, schemas, codecs and files."""

from __future__ import annotations
