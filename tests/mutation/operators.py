"""The changes that are made: every place of a module where one operator applies, found from its source at run time.

Left alone is what cannot weaken a promise or cannot be swapped in a live process: documentation, annotations,
decorators, default arguments, texts and the arguments of a refusal, assertions that only narrow types, code at module
level, and functions that numba compiles.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

Change = tuple[str, ast.AST]
"""The operator's name and what stands in place of the node."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""Off by one, and the opposite."""
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
TWINS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("floor", "ceil"),
    ("any", "all"),
    ("round_up", "round_down"),
)
NAMES = {a: b for pair in TWINS for a, b in (pair, pair[::-1])}
NUMBERS = ("int", "float", "Fraction")
UNTOUCHED = ("annotation", "returns", "decorator_list", "type_comment")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: where it is, what stood there and what stands there now."""

    file: str
    function: str
    """The outermost function, as Python qualifies it: the one whose code is replaced."""
    operator: str
    line: int
    last: int
    column: int
    before: str
    after: str
    text: str
    """The line it stands in."""
    place: int
    """Which one it is among those of its file."""
    nth: int = 0
    """Which one it is among those that are told alike."""
    texts: tuple[str, str] | None = None
    """Of a mutant written by hand: the text that is replaced, and by what."""
    tests: tuple[str, ...] = ()
    """Of a mutant written by hand: tests that are meant to notice; empty leaves it to the records."""

    @property
    def site(self) -> tuple[str, int, int, str]:
        """Where it is: several changes of one node are one site."""
        return self.file, self.line, self.column, self.operator

    @property
    def key(self) -> str:
        """What stays the same when lines move."""
        nth = f" #{self.nth + 1}" if self.nth else ""
        return f"{self.file} {self.function}: {self.text} | {self.before} -> {self.after}{nth}"

    def __str__(self) -> str:
        inside = "" if self.before in self.text and len(self.before) > 20 else f"  in  {self.text}"
        return f"{self.file}:{self.line} [{self.operator}] {self.before}  ->  {self.after}{inside}"


def changes_of(node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> Iterator[Change]:
    """All changes of one node."""
    match node:
        case ast.Compare():
            yield from _compare(node)
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_text_or_type(node):
            yield "arithmetic", _with(node, op=ARITHMETIC[type(node.op)]())
        case ast.AugAssign():
            yield "dropped", ast.Pass()
        case ast.Constant(value=bool(value)):
            yield "boolean", _with(node, value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from _constant(node, value)
        case ast.BoolOp():
            yield "boolean", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=inside):
            yield "boolean", inside
        case ast.UnaryOp(op=ast.USub(), operand=inside) if not isinstance(inside, ast.Constant):
            yield "arithmetic", inside
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield "boolean", _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Raise():
            yield "refusal removed", ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield "dropped", ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if _passes(call, name):
            yield "dropped", ast.Pass()
        case ast.Return(value=ast.expr() as value):
            yield from _neighbors(value, function)
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield "twin", _with(node, func=ast.Name(NAMES[name], ast.Load()))
        case ast.Call(func=ast.Attribute(attr=name) as func) if name in NAMES:
            yield "twin", _with(node, func=_with(func, attr=NAMES[name]))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    twin = copy.copy(node)
    for name, value in fields.items():
        setattr(twin, name, value)
    return twin


def _compare(node: ast.Compare) -> Iterator[Change]:
    for place, op in enumerate(node.ops):
        for other in COMPARISONS[type(op)]:
            yield "comparison", _with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])


def _constant(node: ast.Constant, value: float) -> Iterator[Change]:
    others = (value + 1, value - 1, 0) if isinstance(value, int) else (2 * value, 0.0)
    for other in dict.fromkeys(others):
        if other != value and not (value == 0 and other < 0):
            yield "constant", _with(node, value=other)


def _passes(call: ast.Call, name: str) -> bool:
    """Whether a call gives back what it was given, checked or rounded: then it can be left out."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(each, ast.Name) and each.id == name for each in given)


def _neighbors(value: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> Iterator[Change]:
    """What a function that gives a number or a verdict could give instead."""
    told = ast.unparse(function.returns) if function is not None and function.returns is not None else ""
    if told == "bool" and not isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        yield "neighbor", ast.Return(ast.UnaryOp(ast.Not(), value))
    elif told in NUMBERS and not isinstance(value, ast.Constant):
        yield "neighbor", ast.Return(ast.BinOp(value, ast.Add(), ast.Constant(1)))


def _is_text_or_type(node: ast.BinOp) -> bool:
    """Concatenated texts and united types, whose change fails at once and proves nothing."""
    sides = (node.left, node.right)
    if any(isinstance(side, ast.JoinedStr | ast.List | ast.Tuple | ast.Dict) for side in sides):
        return True
    if any(isinstance(side, ast.Constant) and isinstance(side.value, str | bytes) for side in sides):
        return True
    return isinstance(node.op, ast.BitOr) and all(
        side.id[0].isupper() if isinstance(side, ast.Name) else isinstance(side, ast.Constant) for side in sides
    )


@dataclass(frozen=True, slots=True)
class Site:
    """A place where an operator applies."""

    operator: str
    function: str
    node: ast.AST
    twin: ast.AST

    @property
    def lines(self) -> tuple[int, int]:
        """The first and last line that runs the change; of a statement that holds others, its condition."""
        part = self.node.test if isinstance(self.node, ast.If) else self.node
        return self.node.lineno, part.end_lineno or self.node.lineno  # type: ignore[attr-defined]


class Walk:
    """Visits the places of a module that may change, in one order; at `wanted` the change is made."""

    def __init__(self, wanted: int | None = None) -> None:
        self.wanted = wanted
        self.found: list[Site] = []
        self._stack: list[str] = []
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []

    def module(self, tree: ast.Module) -> ast.Module:
        """Visit all functions of a module and of its classes."""
        for node in tree.body:
            self._definition(node)
        return tree

    def _definition(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            if any("Protocol" in ast.unparse(base) for base in node.bases):
                return
            self._stack.append(node.name)
            for inside in node.body:
                self._definition(inside)
            self._stack.pop()
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_left_alone(node):
            self._stack.append(node.name)
            self._functions.append(node)
            self._visit_body(node)
            self._functions.pop()
            self._stack.pop()

    def _visit_body(self, node: ast.AST) -> None:
        """Visit the children of a node, in place."""
        for name, value in ast.iter_fields(node):
            if name in UNTOUCHED or (name == "args" and isinstance(value, ast.arguments)):
                continue
            if isinstance(value, list):
                setattr(node, name, [self._visit(each) if isinstance(each, ast.AST) else each for each in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self._visit(value))

    def _visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr | ast.Assert | ast.MatchValue | ast.pattern) or _is_text(node):
            return node
        for operator, twin in changes_of(node, self._functions[-1] if self._functions else None):
            self.found.append(Site(operator, ".".join(self._stack), node, twin))
            if len(self.found) - 1 == self.wanted:
                return ast.copy_location(twin, node)
        if not isinstance(node, ast.Raise):
            self._visit_inside(node)
        return node

    def _visit_inside(self, node: ast.AST) -> None:
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if inner:
            self._functions.append(node)  # type: ignore[arg-type]
        self._visit_body(node)
        if inner:
            self._functions.pop()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_left_alone(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    compiled = any("njit" in ast.unparse(each) or "overload" in ast.unparse(each) for each in node.decorator_list)
    return compiled or node.name in ("__repr__", "__str__")


def generate(path: Path, root: Path) -> list[Mutant]:
    """Every mutant of a module."""
    source = path.read_text(encoding="utf-8")
    walk, lines = Walk(), source.splitlines()
    walk.module(ast.parse(source))
    file, made, told = str(path.relative_to(root)), [], Counter[str]()
    for place, site in enumerate(walk.found):
        # A statement that holds others is told by its first line alone.
        before, after = (ast.unparse(each).splitlines()[0] for each in (site.node, site.twin))
        first, last = site.lines
        column, text = site.node.col_offset, lines[first - 1].strip()  # type: ignore[attr-defined]
        mutant = Mutant(file, site.function, site.operator, first, last, column, before, after, text, place)
        made.append(replace(mutant, nth=told[mutant.key]))
        told[mutant.key] += 1
    return made


def mutate(source: str, mutant: Mutant) -> ast.Module:
    """The module with the change made."""
    if mutant.texts is not None:
        return ast.parse(source.replace(*mutant.texts, 1))
    tree = Walk(mutant.place).module(ast.parse(source))
    return ast.fix_missing_locations(tree)
