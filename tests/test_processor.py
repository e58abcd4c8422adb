"""The processor's instructions, as Linux names them."""

import platform

import pytest

from kbert.processor import instructions


@pytest.mark.parametrize(
    "text, expected",
    [
        ("processor: 0\nflags\t\t: fpu avx512f avx512_bf16 avx512_vnni\n", True),
        ("flags : fpu amx_bf16 avx512_vnni\n", True),
        ("Features\t: fp asimd bf16 avx512_vnni\n", True),
        ("model name : avx512_vnni machine\nflags : fpu avx512f\n", False),
        (None, False),
    ],
)
def test_the_instructions_are_read_from_linux(tmp_path, monkeypatch, text, expected):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    assert ("avx512_vnni" in instructions.__wrapped__(str(path))) == expected
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    assert not instructions.__wrapped__(str(path))
