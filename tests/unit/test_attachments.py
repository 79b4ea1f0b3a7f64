"""Text of attached files, which the model reads."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from mochi_server.constants import MAX_ATTACHMENT_TEXT_BYTES
from mochi_server.services.attachments import UnreadableFile, text_of
from mochi_server.util.text import install_command
from tests.support.pdf import pdf

ENCRYPTED_WITH_CERTIFICATE = pdf("Secret").replace(
    b"trailer\n<<",
    b"trailer\n<<\n/Encrypt << /Filter /Adobe.PubSec /SubFilter /adbe.pkcs7.s5 /V 4 >>",
)


def text(data: bytes, media_type: str = "text/plain", name: str = "notes.txt") -> str:
    return asyncio.run(text_of(data, media_type, name))


@pytest.mark.parametrize(
    ("data", "media_type", "name"),
    [
        ("Grüße".encode(), "text/plain", "notes.txt"),
        ("Grüße".encode("utf-8-sig"), "text/plain", "notes.txt"),
        ("Grüße".encode("utf-16"), "text/plain", "notes.txt"),
        ("Grüße".encode("utf-32"), "text/plain", "notes.txt"),
        ("Grüße".encode("latin-1"), "text/plain", "notes.txt"),
        ("Grüße".encode("latin-1"), "text/plain; charset=iso-8859-1", "notes"),
        ("Grüße".encode("utf-16-le"), "text/plain;charset=UTF-16LE", "notes"),
        ("Grüße".encode(), "application/octet-stream", "notes.unknown"),
        ("Grüße".encode("latin-1"), "application/octet-stream", "notes.py"),
        ("Grüße".encode("latin-1"), "", "NOTES.LOG"),
    ],
)
def test_text_of_each_encoding_is_read(data: bytes, media_type: str, name: str) -> None:
    assert text(data, media_type, name) == "Grüße"


def test_text_of_windows_keeps_its_quotation_marks() -> None:
    assert text("„5 €“".encode("cp1252")) == "„5 €“"
    assert text(b"\x81\xe9") == "\x81é"  # Windows has no character 0x81


def test_text_about_pdf_is_no_pdf() -> None:
    page = b"A PDF begins with %PDF-1.7."
    for media_type, name in [("text/markdown", "a"), ("", "a.md"), ("", "a.py")]:
        assert text(page, media_type, name) == page.decode()


def test_binary_files_are_refused_with_what_is_supported() -> None:
    for data in (b"PK\x03\x04\0\0", b"\x89PNG\r\n\x1a\n\0", bytes(range(256))):
        with pytest.raises(UnreadableFile, match=r"Supported are text of any kind.*and PDF"):
            text(data, "application/octet-stream", "file.bin")


def test_text_above_the_limit_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="more than 16 MB"):
        text(b"a" * (MAX_ATTACHMENT_TEXT_BYTES + 1))


def test_pages_of_a_pdf_are_read_in_order() -> None:
    data = pdf("First page", "Second page")
    assert text(data, "application/octet-stream", "x") == "First page\n\nSecond page"
    assert text(data, "application/pdf", "x.pdf") == text(data, "", "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (pdf("Secret", password="open"), "encrypted. Remove its password"),
        (ENCRYPTED_WITH_CERTIFICATE, "encrypted"),
        (pdf("Cut")[:300], "damaged"),
        (b"%PDF-1.7 nonsense", "damaged"),
        (pdf(""), "no text, as a scan does"),
    ],
)
def test_pdf_without_readable_text_is_refused_with_the_reason(data: bytes, problem: str) -> None:
    with pytest.raises(UnreadableFile, match=problem):
        text(data, "application/pdf", "file.pdf")


@pytest.mark.slow
def test_pdf_that_expands_beyond_the_limit_is_refused() -> None:
    bomb = pdf("A" * 50_000, repeated=400)
    assert len(bomb) < 1_000_000
    with pytest.raises(UnreadableFile, match=r"more than 16 MB of text|more than 10 s"):
        text(bomb, "application/pdf", "bomb.pdf")


def test_pdf_that_needs_no_password_is_read() -> None:
    assert text(pdf("Open", algorithm="AES-256"), "application/pdf", "a.pdf") == "Open"


@pytest.mark.parametrize("password", ["", "open"])
def test_encrypted_pdf_is_refused_without_a_library_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, password: str
) -> None:
    data = pdf("Secret", password=password, algorithm="AES-256")
    (tmp_path / "cryptography.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnreadableFile, match=r"encrypted\. Remove its password"):
        text(data, "application/pdf", "a.pdf")


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    command = f"Install its extra `files`: {install_command('files')}"
    with pytest.raises(UnreadableFile, match=re.escape(command)):
        text(pdf("Unknown page"), "application/pdf", "x.pdf")


def test_text_of_a_pdf_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    document = pdf("Cached page")
    assert text(document) == "Cached page"
    monkeypatch.setitem(sys.modules, "pypdf", None)  # it can be read no more
    assert text(document) == "Cached page"


@pytest.mark.slow
def test_cache_contains_the_latest_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    document = pdf("Oldest page")
    text(document)
    for number in range(16):
        text(pdf(f"Page {number}"))
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(UnreadableFile):
        text(document)
