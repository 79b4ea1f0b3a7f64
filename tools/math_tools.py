"""Tools for arithmetic, in which models often make mistakes."""


def add_numbers(a: float, b: float) -> str:
    """Add two numbers together.

    Args:
        a: The first number to add.
        b: The second number to add.
    """
    return _plain(a + b)


def subtract_numbers(a: float, b: float) -> str:
    """Subtract one number from another.

    Args:
        a: The number to subtract from.
        b: The number to subtract.
    """
    return _plain(a - b)


def multiply_numbers(a: float, b: float) -> str:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    return _plain(a * b)


def divide_numbers(a: float, b: float) -> str:
    """Divide one number by another.

    Args:
        a: The number to be divided.
        b: The number to divide by; not zero.
    """
    if b == 0:
        raise ValueError("a number cannot be divided by zero")
    return _plain(a / b)


def _plain(number: float) -> str:
    """Return the number as text, without a decimal point if it is a whole number."""
    return str(int(number)) if float(number).is_integer() else str(number)
