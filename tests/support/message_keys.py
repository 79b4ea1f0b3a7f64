"""Plugin of mypy: ``get`` with the key of another role is an error, as ``[]`` is.

Without it, ``get`` returns an ``object`` for a key that a message lacks, and conditions accept it.
"""

from collections.abc import Callable

from mypy.errorcodes import TYPEDDICT_ITEM
from mypy.nodes import StrExpr
from mypy.plugin import MethodContext, Plugin
from mypy.plugins.default import typed_dict_get_callback
from mypy.types import Type, TypedDictType


class MessageKeys(Plugin):
    """Plugin that checks the keys of stored messages."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        return _checked_get if fullname == "typing.Mapping.get" else None


def _checked_get(context: MethodContext) -> Type:
    message = context.type
    key = context.args[0][0]
    if isinstance(message, TypedDictType) and isinstance(key, StrExpr):
        name = message.fallback.type.fullname
        is_stored = name.startswith("mochi_server.sessions.types.")
        if is_stored and key.value not in message.items:
            problem = f'"{name.rpartition(".")[2]}" has no key "{key.value}"'
            context.api.fail(problem, context.context, code=TYPEDDICT_ITEM)
    return typed_dict_get_callback(context)


def plugin(_: str) -> type[Plugin]:
    """Return the plugin. mypy calls this function with its version."""
    return MessageKeys
