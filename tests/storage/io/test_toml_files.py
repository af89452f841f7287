"""TOML files as editors save them: with a byte order mark, and in other encodings."""

import pytest

from collapsium.storage.io.encodings import parse_toml, read_toml_text

TEXT = 'family = "lda"\r\nname = "Orléans"\r\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_toml__is_decoded_by_its_byte_order_mark(tmp_path, encoding):
    (tmp_path / "x.toml").write_bytes(TEXT.encode(encoding))
    assert parse_toml(read_toml_text(tmp_path / "x.toml")) == {"family": "lda", "name": "Orléans"}


def test_toml_in_another_encoding__is_refused_with_advice(tmp_path):
    (tmp_path / "x.toml").write_bytes(TEXT.encode("cp1252"))
    with pytest.raises(ValueError, match="expected UTF-8 .*; save it as UTF-8"):
        read_toml_text(tmp_path / "x.toml")
