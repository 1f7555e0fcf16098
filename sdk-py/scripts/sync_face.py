"""The face without async: a class for each class, made from its source."""

from __future__ import annotations

import ast
import pathlib
import re

CLASSES = {"api.py": "Api", "asks.py": "Ask", "files.py": "Files", "processes.py": "Processes", "terminal.py": "Terminal", "turn.py": "Turn", "session.py": "Session", "client.py": "SandboxAgent"}
TWINS = set(CLASSES.values())
SKIP = {"headers", "disconnect", "__await__", "aclose"}

HEAD = '''"""The client without async: the same names, each call waits for its end.

    with SandboxAgent("http://127.0.0.1:2468", agent="claude") as client:
        session = client.new_session(cwd="/tmp")
        print(session.prompt("hello").result().text)

Handlers of requests run in threads of their own and may use the client. Listeners
run where messages are read: they must return soon, and must not wait for the client.

Generated from the asynchronous classes by scripts/generate.py; not edited by hand.
"""

from __future__ import annotations

'''

START = '''
class LocalSandboxAgent(SandboxAgent):
    """A client with a gateway of its own, which ends with the client, and at the latest with this process."""

    _it: _local.LocalSandboxAgent

    @property
    def url(self) -> str:
        return self._it.url

    @property
    def token(self) -> str:
        return self._it.token

    @property
    def pid(self) -> int:
        return self._it.pid


def start(%(parameters)s) -> LocalSandboxAgent:
    """%(doc)s"""
    loop = Loop()
    try:
        it = loop.run(lambda: _local.start(%(arguments)s))
    except BaseException:
        loop.stop()
        raise
    client = LocalSandboxAgent.__new__(LocalSandboxAgent)
    client._loop, client._it = loop, it
    return client
'''


def face(package: pathlib.Path) -> str:
    imports: dict[str, set[str]] = {}
    bodies = []
    for file, name in CLASSES.items():
        tree = ast.parse((package / file).read_text())
        collect(tree, imports)
        (node,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
        bodies.append(twin(node, file.removesuffix(".py")))
    tree = ast.parse((package / "local.py").read_text())
    (start,) = [n for n in tree.body if isinstance(n, ast.AsyncFunctionDef) and n.name == "start"]
    bodies.append(START % {"parameters": parameters(start, method=False), "doc": ast.get_docstring(start, clean=False), "arguments": arguments(start, method=False)})
    text = "\n\n".join(bodies)
    lines = []
    for module in sorted(imports):
        used = sorted(n for n in imports[module] if re.search(rf"\b{n.split(' as ')[-1]}\b", text))
        if used:
            lines.append(f"from {module} import {', '.join(used)}\n")
    for file in CLASSES:
        lines.append(f"from . import {file.removesuffix('.py')} as _{file.removesuffix('.py')}\n")
    lines.append("from . import local as _local\nfrom ._blocking import Loop\n")
    exported = sorted([*TWINS, "LocalSandboxAgent", "start"])
    names = "__all__ = [" + ", ".join(f'"{n}"' for n in exported) + "]\n"
    handler = 'Handler: TypeAlias = "Callable[[Ask], str | dict[str, Any] | None]"\n'
    lines.append("from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence\nfrom typing import Any, Literal, TypeAlias\n")
    return HEAD + "".join(sorted(lines)) + "\n" + names + "\n" + handler + "\n\n" + text


def collect(tree: ast.Module, imports: dict[str, set[str]]) -> None:
    """The names of types that signatures use."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in ("activity", "versions", "api_types", "turn", "terminal", "api", "processes", "client"):
            for alias in node.names:
                if alias.asname or alias.name not in TWINS:
                    imports.setdefault("." + node.module, set()).add(alias.name + (f" as {alias.asname}" if alias.asname else ""))
    for name, module in (("Activity", ".activity"), ("TurnResult", ".turn"), ("TerminalExit", ".terminal"), ("Output", ".processes"), ("State", ".client"), ("UpdateListener", ".client"), ("NoticeListener", ".client"), ("LostListener", ".client"), ("Token", ".api"), ("Retry", "._backoff")):
        imports.setdefault(module, set()).add(name)


def twin(node: ast.ClassDef, module: str) -> str:
    out = [f"class {node.name}:\n", doc(node, 4)]
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            out.append(initializer(item, node.name, module))
            out += [attribute(a) for a in ast.walk(item) if isinstance(a, ast.AnnAssign) and isinstance(a.target, ast.Attribute) and not a.target.attr.startswith("_")]
        elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            out.append(method(item))
    return "".join(out)


def initializer(item: ast.FunctionDef, name: str, module: str) -> str:
    if name == "SandboxAgent":
        return (
            f"    def __init__(self, {parameters(item)}) -> None:\n{doc(item, 8)}"
            f"        self._loop = Loop()\n        try:\n            self._it = self._loop.call(lambda: _{module}.{name}({arguments(item)}))\n        except BaseException:\n            self._loop.stop()\n            raise\n\n"
            "    def close(self) -> None:\n        \"\"\"Ends the connection and lets go of everything.\"\"\"\n"
            "        self._loop.close(lambda: self._it.aclose())\n\n"
        )
    return f"    def __init__(self, loop: Loop, it: _{module}.{name}) -> None:\n        self._loop, self._it = loop, it\n\n"


def attribute(node: ast.AnnAssign) -> str:
    assert isinstance(node.target, ast.Attribute)
    return getter(node.target.attr, ast.unparse(node.annotation), "")


def getter(name: str, kind: str, text: str) -> str:
    return f"    @property\n    def {name}(self) -> {kind}:\n{text}        return {wrapped(kind, f'self._it.{name}')}\n\n"


def method(item: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    name, kind = item.name, ast.unparse(item.returns) if item.returns else "None"
    if name == "__aenter__":
        return f"    def __enter__(self) -> {kind}:\n        return self\n\n"
    if name == "__aexit__":
        return "    def __exit__(self, *_: object) -> None:\n        self.close()\n\n"
    if name in SKIP or name.startswith("_") and name != "__aiter__":
        return ""
    if any(isinstance(d, ast.Name) and d.id == "property" for d in item.decorator_list):
        return getter(name, kind, doc(item, 8))
    call = f"self._it.{name}({arguments(item)})"
    head = f"    def {name}(self{', ' if parameters(item) else ''}{parameters(item)}) -> "
    if kind.startswith("AsyncIterator["):
        inner = kind.removeprefix("AsyncIterator[").removesuffix("]")
        name = "__iter__" if name == "__aiter__" else name
        source = f"self._loop.iterate(lambda: {call})"
        body = f"for one in {source}:\n            yield {inner}(self._loop, one)" if inner in TWINS else f"return {source}"
        head = head.replace("def __aiter__", "def __iter__")
        return f"{head}Iterator[{inner}]:\n{doc(item, 8)}        {body}\n\n"
    if isinstance(item, ast.AsyncFunctionDef):
        return f"{head}{kind}:\n{doc(item, 8)}        return {wrapped(kind, f'self._loop.run(lambda: {call})')}\n\n"
    return f"{head}{kind}:\n{doc(item, 8)}        return {wrapped(kind, f'self._loop.call(lambda: {call})')}\n\n"


def wrapped(kind: str, value: str) -> str:
    if kind in TWINS:
        return f"{kind}(self._loop, {value})"
    inner = re.fullmatch(r"list\[(\w+)\]", kind)
    if inner and inner.group(1) in TWINS:
        return f"[{inner.group(1)}(self._loop, one) for one in {value}]"
    return value


def parameters(item: ast.FunctionDef | ast.AsyncFunctionDef, method: bool = True) -> str:
    text = ast.unparse(item.args)
    text = text.removeprefix("self").removeprefix(", ") if method else text
    return text.replace("AsyncIterator[bytes]", "Iterable[bytes]")


def arguments(item: ast.FunctionDef | ast.AsyncFunctionDef, method: bool = True) -> str:
    a = item.args

    def value(arg: ast.arg) -> str:
        kind = ast.unparse(arg.annotation) if arg.annotation else ""
        if "AsyncIterator" in kind:
            return f"self._loop.feed({arg.arg})"
        if kind.startswith("Handler"):
            return f"self._loop.handler({arg.arg}, lambda one: Ask(self._loop, one))"
        return arg.arg

    out = [value(arg) for arg in (a.args[1:] if method else a.args)]
    out += [f"{arg.arg}={value(arg)}" for arg in a.kwonlyargs]
    return ", ".join(out + ([f"**{a.kwarg.arg}"] if a.kwarg else []))


def doc(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: int) -> str:
    text = ast.get_docstring(node, clean=False)
    if not text:
        return ""
    text = text.split("\n\n    >>>")[0].rstrip() + ("\n    " if isinstance(node, ast.ClassDef) and "\n" in text.split(">>>")[0].strip() else "")
    text = text.replace("async ", "").replace("await ", "")
    return " " * indent + f'"""{text}"""\n' + ("\n" if isinstance(node, ast.ClassDef) else "")
