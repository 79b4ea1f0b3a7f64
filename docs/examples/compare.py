"""Send a message to up to three models, and print their answers side by side.

    uv run --no-dev python docs/examples/compare.py http://127.0.0.1:5099 "Why is the sky blue?" 1 2

Name each model, or use its number in the list of models. The first model has number 1.
"""

import json
import sys
import textwrap
from itertools import zip_longest

import httpx

WIDTH = 38


def main(address: str, message: str, *models: str) -> None:
    """Print a column for each model: its name, its speed, its answer."""
    columns: dict[str, list[str]] = {}
    body = {"modelIds": list(models), "message": message}
    with httpx.stream("POST", f"{address}/api/v1/models/test", json=body, timeout=600) as response:
        if response.is_error:
            sys.exit(json.loads(response.read())["error"]["message"])
        event = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                if event == "metadata":
                    columns[data["modelId"]] = [data["modelName"]]
                elif event == "error":
                    columns[data["modelId"]].extend(
                        textwrap.wrap(f"failed: {data['error']}", WIDTH)
                    )
                elif event == "done":
                    columns[data["modelId"]].append(
                        f"{data['tokensPerSecond']} tokens/s, {data['totalMs']:.0f} ms"
                    )
                    columns[data["modelId"]].extend(["", *textwrap.wrap(data["response"], WIDTH)])
    for row in zip_longest(*columns.values(), fillvalue=""):
        print(" | ".join(cell.ljust(WIDTH) for cell in row))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except httpx.HTTPError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
