"""Small PDF files with text."""

import io

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def pdf(*pages: str, password: str = "", algorithm: str | None = None, repeated: int = 1) -> bytes:
    """Return a PDF with a page for each text.

    With only an ``algorithm``, it is encrypted, and its user needs no password.
    """
    writer = PdfWriter()
    for content in pages:
        page = writer.add_blank_page(300, 300)
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        stream = DecodedStreamObject()
        drawn = f"BT /F1 12 Tf 20 200 Td ({content}) Tj ET\n"
        stream.set_data(drawn.encode() * repeated)
        page[NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    if password or algorithm:
        writer.encrypt(password, owner_password="owner", algorithm=algorithm)
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()
