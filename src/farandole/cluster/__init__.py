"""Clusters: hosts, devices, links, and the routes between ranks; as values, from text, from files."""

from farandole.cluster.file import load, schema
from farandole.cluster.model import Cluster, Link
from farandole.cluster.spec import PRESETS, parse

__all__ = ["PRESETS", "Cluster", "Link", "load", "parse", "schema"]
