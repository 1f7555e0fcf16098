"""Writes the types of the protocol and of the HTTP API.

    python scripts/generate.py [--check]

Reads the ACP schema and the OpenAPI document of this repository; with --check it
writes nothing, and fails when a file is not what it would write.
"""

from __future__ import annotations

import json
import keyword
import pathlib
import re
import sys
import textwrap
from typing import Any

from sync_face import face

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent
PACKAGE = HERE / "src" / "sandbox_agent"

PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


class Generator:
    """The types of one set of definitions, as the text of a module."""

    def __init__(self, definitions: dict[str, Any], title: str, source: str) -> None:
        self.definitions = definitions
        self.title = title
        self.source = source
        self.extra: dict[str, str] = {}  # variants of unions that need a class of their own

    def module(self) -> str:
        parts = []
        names = []
        for name in sorted(self.definitions):
            parts.append(self.definition(name, self.definitions[name]))
            names.append(name)
        names += self.extra
        parts += self.extra.values()  # behind the classes that they extend
        head = f'"""{self.title}\n\nGenerated from {self.source} by scripts/generate.py; not edited by hand.\n"""\n\n'
        head += "from __future__ import annotations\n\nfrom typing import Any, Literal, NotRequired, TypeAlias, TypedDict, Union\n\n"
        head += "__all__ = [\n" + "".join(f'    "{n}",\n' for n in sorted(names)) + "]\n\n\n"
        return head + "\n\n".join(parts)

    def definition(self, name: str, schema: dict[str, Any]) -> str:
        doc = comment(schema.get("description", ""))
        if self.is_object(schema):
            return self.typed_dict(name, schema.get("properties", {}), set(schema.get("required", [])), "TypedDict", schema.get("description", ""))
        kind = self.type(schema, name)
        return f'{doc}{name}: TypeAlias = "{kind}"\n'

    def is_object(self, schema: dict[str, Any]) -> bool:
        return schema.get("type") == "object" and bool(schema.get("properties")) and not ({"oneOf", "anyOf", "allOf"} & set(schema))

    def typed_dict(self, name: str, properties: dict[str, Any], required: set[str], base: str, description: str) -> str:
        fields = {}
        for key, schema in properties.items():
            kind = self.type(schema, name + upper(key))
            fields[key] = kind if key in required else f"NotRequired[{kind}]"
        if all(key.isidentifier() and not keyword.iskeyword(key) for key in fields):
            body = "".join(f"    {key}: {kind}\n" for key, kind in fields.items()) or "    pass\n"
            text = docstring(description)
            return f"class {name}({base}):\n{text}{body}"
        inside = ", ".join(f'"{key}": "{kind}"' for key, kind in fields.items())
        return f'{comment(description)}{name} = TypedDict("{name}", {{{inside}}})\n'

    def type(self, schema: Any, name: str) -> str:
        """The expression for a schema; name is for a class that it may need."""
        if not isinstance(schema, dict) or not schema:
            return "Any"
        if "$ref" in schema:
            return str(schema["$ref"]).rsplit("/", 1)[-1]
        if "const" in schema:
            return f"Literal[{literal(schema['const'])}]"
        if "enum" in schema:
            return f"Literal[{', '.join(literal(v) for v in schema['enum'])}]"
        for word in ("oneOf", "anyOf"):
            if word in schema:
                shared, needed = schema.get("properties", {}), schema.get("required", [])
                kinds = []
                for i, one in enumerate(schema[word]):
                    if "not" in one:
                        continue  # what a later version may add: nothing that a program could tell apart
                    if shared:
                        one = {**one, "properties": {**shared, **one.get("properties", {})}, "required": [*needed, *one.get("required", [])]}
                    kinds.append(self.type(one, self.variant(name, one, i, shared)))
                return union(kinds)
        if "allOf" in schema:
            return self.all_of(schema, name)
        if isinstance(schema.get("type"), list):
            return union([self.type({**schema, "type": t}, name) for t in schema["type"]])
        kind = schema.get("type")
        if kind == "array":
            return f"list[{self.type(schema.get('items'), name)}]"
        if kind == "object" or "properties" in schema:
            if schema.get("properties"):
                return self.own(name, schema["properties"], schema, "TypedDict")
            return f"dict[str, {self.type(schema.get('additionalProperties'), name)}]"
        return PLAIN.get(str(kind), "Any")

    def all_of(self, schema: dict[str, Any], name: str) -> str:
        """A definition, perhaps with further fields: one that tells the variants of a union apart."""
        own = schema.get("properties", {})
        refs = [str(s["$ref"]).rsplit("/", 1)[-1] for s in schema["allOf"] if "$ref" in s]
        if len(refs) != 1 or len(schema["allOf"]) != 1:
            return "dict[str, Any]"
        target = self.definitions.get(refs[0], {})
        if not own:
            return refs[0]
        if "anyOf" in target and "properties" in target:  # variants that differ in little: one class has the fields of all
            fields = {**self.fields(target), **own}
            return self.own(name, fields, {**schema, "required": [*schema.get("required", []), *target.get("required", [])]}, "TypedDict")
        if "anyOf" in target:  # a union, of which each variant gets the fields
            return self.type({"anyOf": target["anyOf"], "properties": own, "required": schema.get("required", [])}, name)
        if not self.is_object(target):
            return refs[0]
        fields = {k: v for k, v in own.items() if k not in target.get("properties", {})}
        return self.own(name, fields, schema, refs[0])

    def fields(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The fields of an object and of what it is made of."""
        found: dict[str, Any] = {}
        for one in [*schema.get("allOf", []), *schema.get("anyOf", [])]:
            found.update(self.fields(self.definitions[one["$ref"].rsplit("/", 1)[-1]] if "$ref" in one else one))
        found.update(schema.get("properties", {}))
        return found

    def own(self, name: str, fields: dict[str, Any], schema: dict[str, Any], base: str) -> str:
        """Makes a class that no definition is, and returns its name."""
        while name in self.definitions or name in self.extra:
            name += "Variant"
        self.extra[name] = ""  # taken
        self.extra[name] = self.typed_dict(name, fields, set(schema.get("required", [])), base, schema.get("description", ""))
        return name

    @staticmethod
    def variant(name: str, schema: dict[str, Any], index: int, shared: dict[str, Any]) -> str:
        """A name for a variant: the constant that tells it from the others, which is none that they share."""
        for key, field in schema.get("properties", {}).items():
            if shared.get(key) != field and isinstance(field, dict) and isinstance(field.get("const"), str):
                return name + upper(field["const"])
        return name + (upper(schema["title"]) if isinstance(schema.get("title"), str) else str(index + 1))


def union(kinds: list[str]) -> str:
    unique = list(dict.fromkeys(kinds))
    if "Any" in unique:
        return "Any"
    if "str" in unique:  # names of tomorrow are allowed
        unique = [k for k in unique if not k.startswith("Literal[")]
    return unique[0] if len(unique) == 1 else f"Union[{', '.join(unique)}]"


def literal(value: Any) -> str:
    return "'" + value + "'" if isinstance(value, str) else repr(value)


def upper(word: str) -> str:
    return "".join(p[:1].upper() + p[1:] for p in re.split(r"\W|_", word))


def docstring(text: str) -> str:
    text = text.split("\n\n")[0].replace("\\", "").replace('"""', "'''").strip()
    if not text:
        return ""
    lines = textwrap.wrap(" ".join(text.split()), 96)
    if len(lines) == 1:
        return f'    """{lines[0]}"""\n\n'
    return '    """' + "\n    ".join(lines) + '\n    """\n\n'


def comment(text: str) -> str:
    text = " ".join(text.split("\n\n")[0].split())
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 98))


def modules() -> dict[pathlib.Path, str]:
    one = json.loads((ROOT / "acp/schema/v1.unstable.json").read_text())
    two = json.loads((ROOT / "acp/schema/v2.unstable.json").read_text())
    api = json.loads((ROOT / "docs/openapi.json").read_text())
    return {
        PACKAGE / "acp_types.py": Generator(one["$defs"], "The types of the Agent Client Protocol, version 1.", "the protocol's schema").module(),
        PACKAGE / "acp_types_v2.py": Generator(two["$defs"], "The types of the Agent Client Protocol, version 2.", "the protocol's schema").module(),
        PACKAGE / "api_types.py": Generator(api["components"]["schemas"], "The types of the gateway's HTTP API.", "the OpenAPI document").module(),
        PACKAGE / "sync.py": face(PACKAGE),
    }


def main() -> int:
    stale = []
    for path, text in modules().items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.name)
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
    if stale and "--check" in sys.argv[1:]:
        print("not what scripts/generate.py writes: " + ", ".join(stale), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
