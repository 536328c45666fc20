"""Each import contract of pyproject.toml refuses an import that is planted against it.

A contract that names a module that has moved, or layers in a wrong order, would be kept for ever
and say nothing. The true contracts are checked against the true import graph and one import more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION: dict[str, Any] = read_configuration(str(ROOT / "pyproject.toml"))
OPTIONS: dict[str, Any] = CONFIGURATION["session_options"]
CONTRACTS: list[dict[str, Any]] = CONFIGURATION["contracts_options"]
KINDS: dict[str, type[Contract]] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "layers": LayersContract,
}

Import = tuple[str, str]
"""Of the module that imports, and of the module that it imports."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        *OPTIONS["root_packages"],
        include_external_packages=True,
        exclude_type_checking_imports="exclude_type_checking_imports" in OPTIONS,
        cache_dir=None,
    )


def is_kept(options: dict[str, Any], graph: grimp.ImportGraph) -> bool:
    contract = KINDS[options["type"]](
        name=options["name"], session_options=OPTIONS, contract_options=options
    )
    return contract.check(deepcopy(graph), verbose=False).kept


def upward(options: dict[str, Any], graph: grimp.ImportGraph) -> Iterator[Import]:
    """From each layer to the one above it, and between those that are side by side."""
    for container in options.get("containers", [""]):
        layers = [
            [name for name in named(layer, container) if name in graph.modules]
            for layer in options["layers"]
        ]
        there = [layer for layer in layers if layer]
        for above, below in itertools.pairwise(there):
            yield from itertools.product(below, above)
        for options_layer, layer in zip(options["layers"], layers, strict=True):
            if "|" in options_layer:
                yield from itertools.permutations(layer, 2)


def named(layer: str, container: str) -> list[str]:
    parts = [part.strip().strip("()") for part in layer.replace(":", "|").split("|")]
    return [f"{container}.{part}" if container else part for part in parts]


def forbidden(options: dict[str, Any], graph: grimp.ImportGraph) -> Iterator[Import]:
    there = [name for name in options["forbidden_modules"] if name in graph.modules]
    yield from itertools.product(options["source_modules"], there)


def backward(options: dict[str, Any], graph: grimp.ImportGraph) -> Iterator[Import]:
    """Against one import between siblings, in each package below the ancestors."""
    for ancestor in options["ancestors"]:
        for package in sorted({ancestor, *graph.find_descendants(ancestor)}):
            pair = first_import(graph, package)
            if pair is not None:
                yield pair[1], pair[0]


def first_import(graph: grimp.ImportGraph, package: str) -> Import | None:
    siblings = sorted(graph.find_children(package))
    for importer, imported in itertools.permutations(siblings, 2):
        if graph.direct_import_exists(importer=importer, imported=imported, as_packages=True):
            return importer, imported
    return None


PLANTS: dict[str, Callable[[dict[str, Any], grimp.ImportGraph], Iterator[Import]]] = {
    "acyclic_siblings": backward,
    "forbidden": forbidden,
    "layers": upward,
}


@pytest.mark.parametrize("options", CONTRACTS, ids=lambda options: str(options["name"]))
def test_a_contract_refuses_every_import_that_is_planted_against_it(
    options: dict[str, Any], graph: grimp.ImportGraph
) -> None:
    assert is_kept(options, graph)

    planted = list(PLANTS[options["type"]](options, graph))
    assert planted, "nothing could be planted: the contract names no module that exists"
    let_in = []
    for importer, imported in planted:
        worse = deepcopy(graph)
        worse.add_import(importer=importer, imported=imported)
        if is_kept(options, worse):
            let_in.append(f"{importer} -> {imported}")
    assert not let_in


@pytest.mark.parametrize(
    "lines",
    ["if TYPE_CHECKING:\n    import {0}.b\n", "def late():\n    import {0}.b\n"],
    ids=["type checking", "inside a function"],
)
def test_imports_that_are_not_run_at_once_are_counted(
    lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "planted_package"
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("from typing import TYPE_CHECKING\n" + lines.format(name))
    (package / "b.py").write_text(f"import {name}.a\n")
    monkeypatch.syspath_prepend(tmp_path)
    built = grimp.build_graph(
        name,
        exclude_type_checking_imports="exclude_type_checking_imports" in OPTIONS,
        cache_dir=None,
    )
    options = {"name": "no cycle", "type": "acyclic_siblings", "ancestors": [name]}

    assert not is_kept(options, built)
