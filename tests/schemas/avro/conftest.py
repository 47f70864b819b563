"""Random Avro schemas, valid and invalid, and random changes to them."""

import copy
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

AVRO_JAVA_VERSION: Final = "1.12.1"
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "scale": 12, "precision": 9},  # not a decimal
    {"type": "string", "logicalType": "timestamp-millis"},  # not on a string
)
WORDS = ("a", "B1", "_x", "row", "Order", "record", "total")
NAMESPACES = ("com.shop", "com.shop.eu", "", "org")
VALUES = (0, -1, 7, 1 << 40, 1.5, 1e10, 1e-7, 0.001, 123456.789, True, None, "tëxt \u0001\n", "")


class SchemaMaker:
    """Makes one schema after the other from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names: list[str] = []
        self._counter = 0

    def schema(self) -> Any:
        """A schema that is mostly valid."""
        self._names, self._counter = [], 0
        return self._type(0, in_union=False)

    def changed(self, schema: Any) -> Any:
        """The schema with one to three changes."""
        changed = copy.deepcopy(schema)
        for _ in range(self.random.randint(1, 3)):
            changed = self._change(changed)
        return changed

    def _change(self, node: Any) -> Any:
        choice = self.random.random()
        if isinstance(node, list) and node:
            return self._change_union(node, choice)
        if isinstance(node, dict) and "fields" in node and node["fields"] and choice < 0.9:
            return self._change_record(node, choice)
        if isinstance(node, dict) and node.get("type") == "enum" and choice < 0.7:
            return self._change_enum(node)
        for key in ("items", "values"):
            if isinstance(node, dict) and key in node and choice < 0.8:
                return {**node, key: self._change(node[key])}
        if choice < 0.5:
            return self.random.choice(PRIMITIVES)
        return ["null", node] if isinstance(node, str) and node != "null" else node

    def _change_union(self, node: list[Any], choice: float) -> Any:
        index = self.random.randrange(len(node))
        if choice < 0.25:
            return node[:index] + node[index + 1 :]
        if choice < 0.5:
            return [*node, self.random.choice(PRIMITIVES)]
        if choice < 0.6:
            return node[index]
        return [*node[:index], self._change(node[index]), *node[index + 1 :]]

    def _change_enum(self, node: dict[str, Any]) -> Any:
        symbols = list(node["symbols"])
        if symbols and self.random.random() < 0.5:
            symbols.pop()
        else:
            symbols.append("NEW")
        changed = {**node, "symbols": symbols}
        if self.random.random() < 0.3:
            changed["name"] = "Renamed"
        return changed

    def _change_record(self, node: dict[str, Any], choice: float) -> Any:
        fields = list(node["fields"])
        index = self.random.randrange(len(fields))
        if choice < 0.15:
            del fields[index]
        elif choice < 0.3:
            fields.append({"name": "added", "type": self.random.choice(PRIMITIVES)})
        elif choice < 0.4:
            fields.append({"name": "added", "type": ["null", "int"], "default": None})
        elif choice < 0.5:
            old = fields[index]
            fields[index] = {**old, "name": "renamed", "aliases": [old["name"]]}
        elif choice < 0.55:
            return {**node, "name": "Other", "aliases": [node["name"]][: self.random.randrange(2)]}
        else:
            field = {**fields[index], "type": self._change(fields[index]["type"])}
            field.pop("default", None)
            fields[index] = field
        return {**node, "fields": fields}

    def _type(self, depth: int, *, in_union: bool) -> Any:
        choice = self.random.random()
        if depth > 4 or choice < 0.3:
            return self.random.choice(PRIMITIVES)
        if choice < 0.4:
            return dict(self.random.choice(LOGICAL))
        if choice < 0.48 and self._names:
            return self.random.choice(self._names)
        if choice < 0.55:
            return {"type": "array", "items": self._type(depth + 1, in_union=False)}
        if choice < 0.62:
            return self._with_properties(
                {"type": "map", "values": self._type(depth + 1, in_union=False)}
            )
        if choice < 0.72 and not in_union:
            return [self._type(depth + 1, in_union=True) for _ in range(self.random.randint(1, 4))]
        return self._named(depth)

    def _named(self, depth: int) -> Any:
        self._counter += 1
        name = self.random.choice(WORDS) + str(self._counter)
        named: dict[str, Any] = {"name": name}
        if self.random.random() < 0.3:
            named["namespace"] = self.random.choice(NAMESPACES)
        elif self.random.random() < 0.2:
            named["name"] = f"{self.random.choice(NAMESPACES[:2])}.{name}"
        if self.random.random() < 0.2:
            named["aliases"] = [self.random.choice(WORDS), "x.y.Old"]
        if self.random.random() < 0.2:
            named["doc"] = 'what "it" is / ünïcode \u2028'
        self._names.append(name)
        choice = self.random.random()
        if choice < 0.15:
            named |= {"type": "fixed", "size": self.random.randint(0, 20)}
        elif choice < 0.3:
            named |= {"type": "enum", "symbols": ["RED", "GREEN", "BLUE"]}
            if self.random.random() < 0.4:
                named["default"] = "RED"
        else:
            count = self.random.randint(0, 5)
            fields = [self._field(index, depth) for index in range(count)]
            named |= {"type": "record", "fields": fields}
        items = list(self._with_properties(named).items())
        self.random.shuffle(items)
        return dict(items)

    def _field(self, index: int, depth: int) -> Any:
        kind = self._type(depth + 1, in_union=False)
        field: dict[str, Any] = {"name": f"f{index}", "type": kind}
        if self.random.random() < 0.3:
            field["default"] = self._default(kind)
        if self.random.random() < 0.1:
            field["order"] = self.random.choice(("ascending", "descending", "IGNORE"))
        if self.random.random() < 0.1:
            field["aliases"] = ["was", f"f{index}_old"]
        if self.random.random() < 0.1:
            field["doc"] = "a field"
        return self._with_properties(field)

    def _default(self, kind: Any) -> Any:
        if self.random.random() < 0.1:
            return self.random.choice(VALUES)
        if isinstance(kind, list):
            return self._default(self.random.choice(kind))
        name = kind["type"] if isinstance(kind, dict) else kind
        if name in ("array", "map"):
            return [] if name == "array" else {}
        by_kind: dict[str, tuple[Any, ...]] = {
            "null": (None,),
            "boolean": (True, False),
            "int": (0, -5, 1 << 20),
            "long": (1, 1 << 50),
            "float": (1, 0.1, 1e20, "1.5"),
            "double": (2, 1e-10, 12345678.9, "NaN", "Infinity"),
            "record": ({},),
        }
        return self.random.choice(by_kind.get(name, ("RED", "tëxt")))

    def _with_properties(self, value: dict[str, Any]) -> dict[str, Any]:
        if self.random.random() < 0.15:
            nested = {"z": [self.random.choice(VALUES)], "a": self.random.choice(VALUES)}
            extra = {"owner": self.random.choice(VALUES), "tags": nested}
            return {**value, **extra} if self.random.random() < 0.5 else {**extra, **value}
        return value


@pytest.fixture(scope="session")
def make_schemas() -> type[SchemaMaker]:
    """Makes random schemas from a seed."""
    return SchemaMaker


@pytest.fixture(scope="session")
def avro_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with Avro's Java library, fetched with Maven once per machine."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs Java and Maven")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "penstock" / f"apache-avro-{AVRO_JAVA_VERSION}"
    if not folder.exists():
        fetch(folder, tmp_path_factory.mktemp("maven"))
    return folder


def fetch(folder: Path, work: Path) -> None:
    pom = work / "pom.xml"
    coordinates = (
        ("org.apache.avro", "avro", AVRO_JAVA_VERSION),
        ("org.slf4j", "slf4j-nop", "2.0.13"),
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in coordinates
    )
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>penstock</groupId><artifactId>avro</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom)]
    copying = ["dependency:copy-dependencies", f"-DoutputDirectory={work / 'jars'}"]
    done = subprocess.run([*command, *copying], capture_output=True, text=True, timeout=100)
    if done.returncode != 0:
        pytest.skip(f"Maven could not fetch Avro: {done.stdout[-500:]}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(work / "jars", folder, dirs_exist_ok=True)
