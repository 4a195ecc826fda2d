from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from farandole.cluster import load, parse, schema
from farandole.errors import FormatError, UnsupportedError

TWO_HOSTS = """
format = "farandole-cluster"
version = 1
name = "two hosts"
startup = "1us"
reduce = "100GB/s"

[[rank]]
node = "h{h}.gpu{g}"
host = "h{h}"
repeat = { h = 2, g = 3 }

[[link]]
src = "h{h}.gpu{g}"
dst = "h{h}.switch"
bandwidth = "300GB/s"
latency = "0.5us"
repeat = { h = 2, g = 3 }

[[link]]
src = "h{h}.switch"
dst = "network"
bandwidth = "25GB/s"
latency = "2us"
repeat = { h = 2 }
"""

toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="reading TOML needs Python 3.11")


@toml
def test_a_file_says_the_same_as_the_preset(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(TWO_HOSTS)
    written, preset = load(path), parse("hosts:2x3@300GB/s,1us@25GB/s,4us")
    assert written.startup_s == 1e-6
    assert written.reduce_s_per_byte == 1e-11
    assert written.rank_host.tolist() == preset.rank_host.tolist() == [0, 0, 0, 1, 1, 1]
    for src in range(6):
        for dst in range(6):
            ours, theirs = written.route(src, dst), preset.route(src, dst)
            assert written.bandwidth[ours].tolist() == preset.bandwidth[theirs].tolist()
            assert written.latency_s[ours].sum() == pytest.approx(preset.latency_s[theirs].sum())


@toml
def test_slow_links_and_one_way_links_are_read(tmp_path: Path) -> None:
    path = tmp_path / "ring.toml"
    links = "".join(f'[[link]]\nsrc="d{i}"\ndst="d{(i + 1) % 4}"\nbandwidth="8GB/s"\none_way=true\n' for i in range(4))
    ranks = '[[rank]]\nnode="d{i}"\nrepeat={i=4}\n'
    head = 'format="farandole-cluster"\nversion=1\nname="one way"\n'
    path.write_text(f'{head}{ranks}{links}[[slow]]\nbetween="d1->d2"\nfactor=0.5\n')
    cluster = load(path)
    assert [cluster.link_name(link) for link in cluster.route(1, 0)] == ["d1->d2", "d2->d3", "d3->d0"]
    assert cluster.bandwidth.tolist() == [8e9, 4e9, 8e9, 8e9]
    assert cluster.name == "one way"


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    link = {"src": "a", "dst": "b", "bandwidth": "1GB/s"}
    entry = {
        "format": "farandole-cluster", "version": 1, "name": "pair",
        "rank": [{"node": "a"}, {"node": "b"}], "link": [link],
    }  # fmt: skip
    path.write_text(json.dumps(entry))
    assert load(path).ranks == 2
    assert parse(str(path)).route(1, 0) == [1]


def test_the_schema_names_every_field() -> None:
    assert set(schema()["$defs"]["ClusterFile"]["properties"]) == {
        "format", "version", "name", "rank", "link", "startup", "reduce", "slow",
    }  # fmt: skip


@toml
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", "version = 2", "version"),
        ("farandole-cluster", "something", "something"),
        ('bandwidth = "25GB/s"', 'bandwidth = "25"', "50GB/s or 100Gbit/s"),
        ('latency = "2us"', 'latancy = "2us"', "latancy"),
        ("h{h}.gpu{g}", "h{x}.gpu{g}", "one of repeat: h, g"),
        ('node = "h{h}.gpu{g}"', 'node = "h{h}"', "two ranks sit on node 'h0'"),
        ("repeat = { h = 2 }", "repeat = { h = 0 }", "counts from 1"),
        ('dst = "network"', 'dst = "h{h}.switch"', "joins a node to itself"),
        ("[[rank]]", "[[rank", "not TOML"),
    ],
)
def test_a_mistake_is_refused_with_what_is_wrong(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    assert old in TWO_HOSTS
    path.write_text(TWO_HOSTS.replace(old, new))
    with pytest.raises(FormatError, match=message):
        load(path)


@toml
def test_ranks_that_nothing_joins_are_named_when_they_are_to_talk(tmp_path: Path) -> None:
    path = tmp_path / "apart.toml"
    path.write_text(TWO_HOSTS.replace('dst = "network"', 'dst = "network{h}"'))
    with pytest.raises(ValueError, match="no links lead from rank 0"):
        load(path).route(0, 5)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(FormatError, match=r"nowhere\.toml cannot be read"):
        load(Path("nowhere.toml"))


def test_without_a_reader_of_toml_the_way_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("tomli")

    monkeypatch.setattr(msgspec.toml, "decode", missing)
    path = tmp_path / "two.toml"
    path.write_text(TWO_HOSTS)
    with pytest.raises(UnsupportedError, match="pip install tomli"):
        load(path)
