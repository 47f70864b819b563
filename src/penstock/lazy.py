"""Packages whose public names are imported when they are first used.

Such a package lists its names once, as imports that type checkers and editors read:

    if TYPE_CHECKING:
        from penstock.client.producer import Producer as Producer
    else:
        __getattr__, __dir__ = lazy_names(__name__)

At run time the same lines are read from the package's source, on the first access to a name. A
public name never equals the name of a module of the package: importing that module would replace
it.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, for the imports in its `if TYPE_CHECKING:`."""

    @cache
    def origins() -> dict[str, tuple[str, str]]:
        return _imports_for_type_checkers(package)

    def find(name: str) -> object:
        if name == "__all__":
            return sorted(origins())
        module = sys.modules[package]
        if name not in origins():
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=module)
        home, original = origins()[name]
        value = getattr(import_module(home), original)
        setattr(module, name, value)  # found without this function from now on
        return value

    def list_names() -> list[str]:
        own = (name for name in vars(sys.modules[package]) if name.startswith("__"))
        return sorted({*own, *origins()})

    return find, list_names


def _imports_for_type_checkers(package: str) -> dict[str, tuple[str, str]]:
    """By public name: the module that defines it, and its name there."""
    import ast  # not before a name is used: most processes use none
    import pkgutil

    source = pkgutil.get_data(package, "__init__.py")  # from a zip file too
    assert source is not None, "a package has its source beside it"
    return {
        alias.asname or alias.name: (statement.module or "", alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
