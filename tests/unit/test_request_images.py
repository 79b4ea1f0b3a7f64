"""Images of a request: decoding, validation by position, and no blocking of the event loop."""

import asyncio

import pytest

from mochi_server.errors import ValidationFailed
from mochi_server.sessions import Image
from mochi_server.sessions.images import Location, read_images
from tests.support.cases import cases
from tests.support.images import GIF, PNG, base64_image, numbered_image


async def test_images_are_read_in_order() -> None:
    read = await read_images({(0,): base64_image(PNG), (1,): f"DATA:;base64,{base64_image(GIF)}"})
    assert read == (Image.of(PNG), Image.of(GIF))
    assert [image.data for image in read] == [PNG, GIF]
    assert await read_images({}) == ()


@cases(
    "text",
    [
        base64_image(PNG)[:-1],
        f"x{base64_image(PNG)}",
        f"data:image/png,{base64_image(PNG)}",
        "=",
        "\0",
    ],
)
async def test_first_invalid_image_is_named(text: str) -> None:
    images = [base64_image(PNG), base64_image(GIF), text, text]
    with pytest.raises(ValidationFailed, match=r"^images\.2: not an image"):
        await read_images({("images", index): image for index, image in enumerate(images)})


async def test_large_images_do_not_block_the_event_loop() -> None:
    images: dict[Location, str] = {
        (index,): base64_image(numbered_image(index, 1_000_000)) for index in range(8)
    }
    rounds, reading = 0, asyncio.ensure_future(read_images(images))
    while not reading.done():
        await asyncio.sleep(0)
        rounds += 1
    assert rounds > 10
