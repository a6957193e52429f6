"""Reads a source tree without running it, and finds imports and calls that violate a set of rules.

The rules themselves are in tests/test_architecture.py; here are only the checks. Each finding is one line: where, what,
and what to do about it.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

PARENT = "rocketlet"  # all our modules are imported below this name
INSPECTED = (ast.Import, ast.ImportFrom, ast.Call, ast.ClassDef, ast.If)

Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Import:
    """One imported name. `target` is our module that it comes from, or the full name of a foreign one."""

    target: str
    name: str | None  # None for `import a.b`
    line: int
    for_types_only: bool
    relative: bool


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    is_package: bool
    tree: ast.Module

    def at(self, line: int) -> str:
        return f"{self.path}:{line}: {self.name}"

    def nodes(self, kind: type[Node]) -> list[Node]:
        """All nodes of one of the kinds that rules inspect."""
        return self._by_kind[kind]

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[Any]]:
        nodes: dict[type[ast.AST], list[Any]] = {kind: [] for kind in INSPECTED}
        for node in ast.walk(self.tree):  # cached: it takes longer than all rules together
            if type(node) in nodes:
                nodes[type(node)].append(node)
        return nodes


class SourceTree:
    """All modules of the given packages below a root, and their imports."""

    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self.packages = tuple(packages)
        self.modules = {
            module.name: module
            for package in self.packages
            for path in sorted((root / package).rglob("*.py"))
            for module in [_read(root, path)]
        }

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        """Imports by module, including late ones inside functions."""
        return {module.name: list(self._imports(module)) for module in self.modules.values()}

    def is_ours(self, target: str) -> bool:
        return target.partition(".")[0] in self.packages

    def _imports(self, module: Module) -> Iterator[Import]:
        typing_only = set(_lines_for_types(module))
        for plain in module.nodes(ast.Import):
            for alias in plain.names:
                target = self._module_of(_room_name(alias.name))
                yield Import(target, None, plain.lineno, plain.lineno in typing_only, False)
        for node in module.nodes(ast.ImportFrom):
            base = _absolute(module, node) if node.level else _room_name(node.module or "")
            for alias in node.names:
                target = self._module_of(f"{base}.{alias.name}")
                name = None if target == f"{base}.{alias.name}" and self.is_ours(target) else alias.name
                yield Import(target, name, node.lineno, node.lineno in typing_only, node.level > 0)

    def _module_of(self, dotted: str) -> str:
        """The longest prefix that is one of our modules; foreign names are returned unchanged."""
        if not self.is_ours(dotted):
            return dotted
        parts = dotted.split(".")
        prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        return next((prefix for prefix in prefixes if prefix in self.modules), dotted)


def against_the_arrows(tree: SourceTree, arrows: Mapping[str, set[str]]) -> Iterator[str]:
    """Imports from one room into another that it may not import. A room is a package, or a part of one, in `arrows`."""
    for module in tree.modules.values():
        room = _room(module.name, arrows)
        for edge in tree.imports[module.name]:
            if not tree.is_ours(edge.target):
                continue
            target_room = _room(edge.target, arrows)
            if target_room != room and target_room not in arrows[room]:
                allowed = ", ".join(sorted(arrows[room])) or "nothing of ours"
                yield (
                    f"{module.at(edge.line)} imports {edge.target}, but {room} may import only {allowed}. Move what"
                    f" both need into a package that both may import, or hand it in as an argument from a composition"
                    f" root."
                )


def cycles(tree: SourceTree) -> Iterator[str]:
    """The first import cycle among modules, if there is one."""
    graph = {
        name: {edge.target for edge in imports if edge.target in tree.modules and edge.target != name}
        for name, imports in tree.imports.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        yield (
            f"import cycle: {cycle}. Move what they share into a third module that imports neither, or let the lower"
            f" one take what it needs as an argument; a late import inside a function only hides the knot."
        )


def impure(tree: SourceTree, pure: Iterable[str], but_for: Iterable[str], impure_names: Iterable[str]) -> Iterator[str]:
    """Pure modules that import modules with effects. Imports for type checkers do not count."""
    forbidden = set(impure_names)
    for module in tree.modules.values():
        if not _matches(module.name, pure) or _matches(module.name, but_for):
            continue
        for edge in tree.imports[module.name]:
            if edge.for_types_only or tree.is_ours(edge.target):
                continue
            top = edge.target.partition(".")[0]
            if top in forbidden:
                yield (
                    f"{module.at(edge.line)} is a pure module and imports {top}. Take the time, the randomness or the"
                    f" bytes as an argument, or move the part that acts into a module that is not on the pure list."
                )


def through_another_door(tree: SourceTree, doors: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Imports of foreign modules which only the modules behind `doors[name]` may import."""
    for module in tree.modules.values():
        for edge in tree.imports[module.name]:
            top = edge.target.partition(".")[0]
            if top in doors and not _matches(module.name, doors[top]):
                allowed = ", ".join(doors[top]) or "no module"
                yield (
                    f"{module.at(edge.line)} imports {top}, whose one door is {allowed}. Call that module instead;"
                    f" if it lacks something, add it there."
                )


def forbidden_calls(
    tree: SourceTree, calls: Iterable[str], doors: Iterable[str], advice: str, *, within: Iterable[str] = ("*",)
) -> Iterator[str]:
    """Calls such as `time.time` or `open`, also by an imported name, outside the door modules."""
    forbidden = set(calls)
    for module in tree.modules.values():
        if _matches(module.name, doors) or not _matches(module.name, within):
            continue
        own_names = {
            edge.name: edge.target for edge in tree.imports[module.name] if edge.target in forbidden and edge.name
        }
        for node in module.nodes(ast.Call):
            written = _dotted(node.func)
            called = own_names.get(written, written)
            if called in forbidden:
                yield f"{module.at(node.lineno)} calls {called}. {advice}"


def composition_roots_known(tree: SourceTree, roots: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Modules that import a composition root without permission."""
    for module in tree.modules.values():
        for edge in tree.imports[module.name]:
            if edge.target in roots and not _matches(module.name, roots[edge.target]):
                yield (
                    f"{module.at(edge.line)} imports the composition root {edge.target}, which knows everybody"
                    f" and so may be known by {', '.join(roots[edge.target])} alone. Take the few"
                    f" collaborators that are needed as arguments."
                )


def through_a_facade(tree: SourceTree, facades: Iterable[str], users: Iterable[str]) -> Iterator[str]:
    """Names imported from a package instead of from the module they live in; also relative imports."""
    for module in tree.modules.values():
        for edge in tree.imports[module.name]:
            if edge.relative:
                yield f"{module.at(edge.line)} imports relatively. Name the module in full: from {edge.target} import …"
            package = tree.modules.get(edge.target)
            if package is None or not package.is_package or module.name == edge.target:
                continue
            if edge.name is None or (edge.target in facades and _matches(module.name, users)):
                continue
            yield (
                f"{module.at(edge.line)} imports {edge.name} from the package {edge.target}. Import it from the module"
                f" that defines it."
            )


def by_a_general_name(tree: SourceTree) -> Iterator[str]:
    """Our imports without the parent: in another project `common` or `tools` is that project's."""
    for module in tree.modules.values():
        named = [(alias.name, node.lineno) for node in module.nodes(ast.Import) for alias in node.names]
        named += [(node.module or "", node.lineno) for node in module.nodes(ast.ImportFrom) if node.level == 0]
        for name, line in named:
            if name.partition(".")[0] in tree.packages:
                yield f"{module.at(line)} imports {name} by a general name. Write {PARENT}.{name}."


def inhabited_packages(tree: SourceTree, except_for: Iterable[str]) -> Iterator[str]:
    """__init__.py files that hold more than a docstring."""
    for module in tree.modules.values():
        if not module.is_package or module.name in except_for:
            continue
        body = [node for node in module.tree.body if not _is_docstring(node)]
        if body:
            yield (
                f"{module.at(body[0].lineno)} is a package whose __init__.py holds code. Move it into a module: every"
                f" import of the package pays for it, Spark's workers too."
            )


def badly_named_classes(tree: SourceTree, suffixes: Iterable[str]) -> Iterator[str]:
    """Classes whose name ends in a meaningless word."""
    endings = tuple(suffixes)
    for module in tree.modules.values():
        for node in module.nodes(ast.ClassDef):
            if node.name.endswith(endings):
                yield f"{module.at(node.lineno)} has a class {node.name}. Name what it holds (RouteTable) or does."


def without_docstring(tree: SourceTree) -> Iterator[str]:
    """Modules that do not say what lives in them."""
    for module in tree.modules.values():
        if module.tree.body and ast.get_docstring(module.tree) is None:
            yield f"{module.at(1)} has no docstring. Say what lives there, its invariants, and its Java twin."


def _read(root: Path, path: Path) -> Module:
    relative = path.relative_to(root)
    parts = list(relative.with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, relative, is_package, ast.parse(path.read_text("utf-8"), str(path)))


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.name.split(".")
    parents = parts[: len(parts) - node.level + (1 if module.is_package else 0)]
    return ".".join([*parents, *([node.module] if node.module else [])])


def _room_name(dotted: str) -> str:
    """rocketlet.store.disk is store.disk in the rules; `from rocketlet import X` means the client's public names."""
    if dotted == PARENT:
        return "client"
    return dotted.removeprefix(f"{PARENT}.")


def _dotted(function: ast.expr) -> str:
    """`os.path.join`; empty if the callee has no such name."""
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    return ".".join([function.id, *reversed(parts)]) if isinstance(function, ast.Name) else ""


def _lines_for_types(module: Module) -> Iterator[int]:
    """Lines below `if TYPE_CHECKING:`."""
    for node in module.nodes(ast.If):
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for statement in node.body:
                yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _room(module: str, arrows: Mapping[str, set[str]]) -> str:
    return max((room for room in arrows if module == room or module.startswith(f"{room}.")), key=len)


def _matches(module: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
