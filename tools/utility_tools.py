"""Tools for the current time and for random results."""

import random
from datetime import datetime
from zoneinfo import ZoneInfo


def get_current_time(timezone: str = "") -> str:
    """Get the current date and time.

    Args:
        timezone: A time zone such as "Europe/Berlin". By default, the time zone of the server.
    """
    now = datetime.now(ZoneInfo(timezone)) if timezone else datetime.now().astimezone()
    return f"Current time: {now:%Y-%m-%d %H:%M:%S %Z}"


def flip_coin() -> str:
    """Flip a coin."""
    return random.choice(["Heads", "Tails"])


def roll_dice(sides: int = 6, count: int = 1) -> str:
    """Roll dice.

    Args:
        sides: Number of sides of each die, from 2 to 1000.
        count: Number of dice, from 1 to 100.
    """
    if not (2 <= sides <= 1000 and 1 <= count <= 100):
        raise ValueError("sides must be from 2 to 1000, and count from 1 to 100")
    rolls = [random.randint(1, sides) for _ in range(count)]
    return f"Rolled {', '.join(map(str, rolls))}" + (f", {sum(rolls)} in all" if count > 1 else "")
