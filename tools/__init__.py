"""Tools that models may call. What ``__all__`` names is offered; lists in dunder names are groups.

After a change, ``POST /api/v1/tools/reload`` takes it up.
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

# Under the policy `confirm_destructive`, tools that are not known to be read-only are asked about.
__read_only__ = [*__math__, *__utilities__, "list_dir", "read_file"]
__destructive__ = ["write_file", "delete_file"]
