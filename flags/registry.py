"""What there is to choose from: the modules of a package, by name."""

import contextlib
import difflib
import importlib
import importlib.util
import pkgutil
from types import ModuleType

from errors import RequestError
from errors import missing_is_wrong


def names(package: str) -> list[str]:
    """Lists the public modules directly in `package`, without importing them.

    Sub-packages hold shared machinery and are left out, as is `_private`.
    """
    spec = importlib.util.find_spec(package)
    locations = spec.submodule_search_locations if spec else None
    return sorted(
        module.name
        for module in pkgutil.iter_modules(locations)
        if not module.ispkg and not module.name.startswith("_")
    )


def check(package: str, name: str, flag: str) -> None:
    """Refuses a name that cannot be loaded, without importing anything.

    Args:
        package: Dotted name of one of our packages.
        name: A module of it, or the dotted path of a module of the user's.
            What follows a colon belongs to the module and is ignored.
        flag: Name of the flag it came from, for the message.

    Raises:
        RequestError: if there is no such module.
    """
    name = name.partition(":")[0]
    allowed = names(package)
    if name in allowed:
        return
    # Looking for the whole path would import its parents.
    root, dot, _ = name.partition(".")
    if dot and root and importlib.util.find_spec(root):
        return
    near = difflib.get_close_matches(name, allowed, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise RequestError(
        f"--{flag}={name}: must be one of {', '.join(allowed)}, or the dotted "
        f"path of a module of your own that can be imported.{hint}"
    )


def load(package: str, name: str, flag: str, needs: str = "") -> ModuleType:
    """Imports what `name` means; see `check`.

    Args:
        package: As for `check`.
        name: As for `check`.
        flag: As for `check`.
        needs: A function that the module must have.

    Raises:
        RequestError: if there is no such module, or it has no such function.
            An error inside the module passes through.
    """
    check(package, name, flag)
    name = name.partition(":")[0]
    path = name if "." in name else f"{package}.{name}"
    with missing_is_wrong(path, f"--{flag}={name}"):
        module = importlib.import_module(path)
    if needs and not hasattr(module, needs):
        raise RequestError(
            f"--{flag}={name}: the module has no {needs}; define it as "
            f"{package}/__init__.py says."
        )
    return module


def load_or_class(package: str, name: str, flag: str) -> ModuleType | type:
    """Imports what `name` means: a module, or a class in one of the user's.

    Raises:
        RequestError: as `load`.
    """
    check(package, name, flag)
    parent, _, last = name.rpartition(".")
    # `load` tells what there is to tell.
    with contextlib.suppress(ModuleNotFoundError):
        found = getattr(importlib.import_module(parent or package), last, None)
        if isinstance(found, type):
            return found
    return load(package, name, flag)
