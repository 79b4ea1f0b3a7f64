"""Tools that models can call.

``__all__`` lists the tools. Each other list in a dunder name is a group of tools.

To load your changes, send ``POST /api/v1/tools/reload``.
"""

from .file_tools import delete_file, list_dir, read_file, write_file
from .math_tools import add_numbers, divide_numbers, multiply_numbers, subtract_numbers
from .utility_tools import flip_coin, get_current_time, roll_dice

__all__ = [
    "add_numbers",
    "delete_file",
    "divide_numbers",
    "flip_coin",
    "get_current_time",
    "list_dir",
    "multiply_numbers",
    "read_file",
    "roll_dice",
    "subtract_numbers",
    "write_file",
]

__math__ = ["add_numbers", "subtract_numbers", "multiply_numbers", "divide_numbers"]
__utilities__ = ["get_current_time", "flip_coin", "roll_dice"]
__filesystem__ = ["list_dir", "read_file", "write_file", "delete_file"]

# The policy `confirm_destructive` requires approval for each call of a tool that is not in
# `__read_only__`.
__read_only__ = [*__math__, *__utilities__, "list_dir", "read_file"]
__destructive__ = ["write_file", "delete_file"]
