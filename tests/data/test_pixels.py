"""Columns of images: the arrays against what Pillow and NumPy wrote, and every refusal.

The oracles are the arrays that were written, and Pillow called directly on the files.
"""

import gc
import io
import struct
import time
import warnings
import zlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

from semistan.data import image_sources as picture_sources
from semistan.data import pixels
from semistan.data.image import ImageFormat
from semistan.data.pixels import read_pictures
from semistan.errors import InputError

AS_IT_IS = ImageFormat(None, None)
ORIENTATION = 0x0112  # EXIF's tag


def grey(height=6, width=5, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def colour(height=6, width=5, seed=0, channels=3):
    shape = (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def real(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def write(folder, name, image, **options):
    """Write an array, or Pillow's image, as what the suffix says."""
    (folder / name).parent.mkdir(exist_ok=True)
    if name.endswith(".npy"):
        np.save(folder / name, image)
    else:
        image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
        image.save(folder / name, **options)
    return name


def png(width, height, pixels=b"\0" * 100):
    """Return the bytes of a PNG file whose header claims a size."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def npy_header(shape, kind="|u1"):
    """Return the bytes of a .npy file that has a header and 100 bytes."""
    written = io.BytesIO()
    content = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, content)
    return written.getvalue() + b"\0" * 100


@pytest.fixture
def read(tmp_path):
    """Read paths, or row numbers, that count from the test's folder."""

    def call(values, wanted=AS_IT_IS, name="path", **options):
        return read_pictures(pd.Series(values, name=name), wanted, tmp_path, **options)

    return call


@pytest.fixture
def refused(read):
    """Return the message with which a column is refused."""

    def call(values, wanted=AS_IT_IS, name="path", **options):
        with pytest.raises(InputError) as caught:
            read(values, wanted, name, **options)
        return str(caught.value)

    return call


@pytest.fixture
def opened(monkeypatch):
    """Count how often each file is decoded."""
    names, original = [], picture_sources._read_file

    def counted(path, wanted):
        names.append(path.name)
        return original(path, wanted)

    monkeypatch.setattr(picture_sources, "_read_file", counted)
    return names


# Values


def test_grey_and_colour_files_are_as_written(read, tmp_path):
    one, other = colour(seed=1), colour(seed=2)
    found = read([write(tmp_path, "a.png", one), write(tmp_path, "b.PNG", other)])
    assert found.dtype == np.uint8
    assert found.flags.c_contiguous
    assert np.array_equal(found, np.stack([one, other]).transpose(0, 3, 1, 2))
    assert np.array_equal(read([write(tmp_path, "g.png", grey())]), grey()[None, None])


def test_jpeg_is_what_pillow_decodes(read, tmp_path):
    write(tmp_path, "a.jpg", colour(16, 24))
    write(tmp_path, "b.jpeg", Image.fromarray(colour(16, 24)).convert("CMYK"))
    found = read(["a.jpg", "b.jpeg"])
    for name, image in zip(("a.jpg", "b.jpeg"), found, strict=True):
        with Image.open(tmp_path / name) as oracle:
            expected = np.asarray(oracle.convert("RGB"))
        assert np.array_equal(image.transpose(1, 2, 0), expected)


def test_absolute_paths_and_folders(read, tmp_path):
    write(tmp_path, "deep/a.png", grey())
    for path in ("deep/a.png", str(tmp_path / "deep/a.png"), tmp_path / "deep" / "a.png"):
        assert np.array_equal(read([path])[0, 0], grey())
    assert np.array_equal(read(pd.Categorical(["deep/a.png"]))[0, 0], grey())


def test_an_alpha_channel_is_left_out_and_said(read, tmp_path):
    said = []
    image = colour(channels=4)
    found = read([write(tmp_path, "a.png", image)], say=said.append)
    assert np.array_equal(found[0], image[:, :, :3].transpose(2, 0, 1))
    assert said == ["the alpha channel of images in column 'path' is left out"]
    two = colour(channels=2)
    write(tmp_path, "la.png", Image.fromarray(two, "LA"))
    assert np.array_equal(read(["la.png"])[0], two[None, :, :, 0])


def test_a_palette_becomes_colour(read, tmp_path):
    palette = Image.fromarray(colour()).quantize(8)
    expected = np.asarray(palette.convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(read([write(tmp_path, "p.png", palette)])[0], expected)
    write(tmp_path, "t.png", palette, transparency=bytes([0, 10, 255]))
    assert np.array_equal(read(["t.png"])[0], expected)


def test_one_bit_is_black_and_white(read, tmp_path):
    bits = grey() > 127
    assert np.array_equal(read([write(tmp_path, "a.png", bits)])[0, 0], bits * np.uint8(255))


def test_16_bit_greys_keep_their_values(read, tmp_path):
    wide = np.arange(30, dtype=np.uint16).reshape(6, 5) * 2000
    found = read([write(tmp_path, "a.png", wide)])
    assert found.dtype == np.float32
    assert np.array_equal(found[0, 0], wide)
    real = Image.fromarray(wide.astype(np.float32)).resize((3, 4), Image.Resampling.BILINEAR)
    assert np.array_equal(read(["a.png"], ImageFormat((4, 3), 3))[0, 2], np.asarray(real))


def test_8_bits_beside_others_become_real_and_it_is_said(read, tmp_path):
    write(tmp_path, "a.png", grey())
    write(tmp_path, "b.npy", real(6, 5))
    said = []
    found = read(["a.png", "b.npy"], say=said.append)
    assert found.dtype == np.float32
    assert np.array_equal(found[:, 0], np.stack([grey(), real(6, 5)]))
    assert said == [
        "some images of column 'path' have 8 bits, 0 to 255, and others have not; their values are "
        "taken as they are"
    ]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_exif_orientation_is_applied(read, tmp_path, orientation, suffix):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    name = write(tmp_path, f"a.{suffix}", colour(16, 8), exif=exif)
    with Image.open(tmp_path / name) as image:
        expected = np.asarray(ImageOps.exif_transpose(image)).transpose(2, 0, 1)
    assert np.array_equal(read([name])[0], expected)
    assert np.array_equal(read([name], ImageFormat(expected.shape[1:], 3))[0], expected)


def test_orientation_behind_the_pixels_of_a_png_file_is_applied(read, tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    write(tmp_path, "a.png", grey(6, 5), exif=exif)
    content = (tmp_path / "a.png").read_bytes()
    start = content.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(content[start : start + 4])
    last = content.index(b"IEND") - 4
    moved = content[:start] + content[end:last] + content[start:end] + content[last:]
    (tmp_path / "b.png").write_bytes(moved)
    assert np.array_equal(read(["a.png", "b.png"])[:, 0], np.stack([np.rot90(grey(6, 5), -1)] * 2))


# Channels and sizes


def test_colour_becomes_grey_as_by_pillow(read, tmp_path):
    image = colour(40, 30)
    expected = np.asarray(Image.fromarray(image).convert("L"))
    names = write(tmp_path, "a.png", image), write(tmp_path, "a.npy", image)
    for found in read(names, ImageFormat(None, 1)):
        assert np.array_equal(found[0], expected)
    write(tmp_path, "f.npy", image.astype(np.float32))
    assert read(["f.npy"], ImageFormat(None, 1))[0, 0] == pytest.approx(expected, abs=0.51)


def test_grey_becomes_colour(read, tmp_path):
    write(tmp_path, "a.png", grey())
    write(tmp_path, "b.npy", grey())
    for found in read(["a.png", "b.npy"], ImageFormat(None, 3)):
        assert np.array_equal(found, np.stack([grey()] * 3))


@pytest.mark.parametrize("size", [(4, 4), (7, 3), (20, 15), (40, 31)])
def test_resizing_is_pillows(read, tmp_path, size):
    image = colour(20, 15)
    names = write(tmp_path, "a.png", image), write(tmp_path, "a.npy", image)
    resized = Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR)
    for found in read(names, ImageFormat(size, None)):
        assert np.array_equal(found.transpose(1, 2, 0), np.asarray(resized))
    floats = real(20, 15)
    resized = Image.fromarray(floats).resize(size[::-1], Image.Resampling.BILINEAR)
    write(tmp_path, "f.npy", floats)
    assert np.array_equal(read(["f.npy"], ImageFormat(size, 1))[0, 0], np.asarray(resized))


def test_shrinking_averages(read, tmp_path):
    stripes = np.tile(np.uint8([0, 255]), (32, 16))
    shrunk = read([write(tmp_path, "a.png", stripes)], ImageFormat((4, 4), 1))
    assert np.all(np.abs(shrunk.astype(float) - 127.5) < 8)


def test_images_of_many_sizes_and_channels_become_one(read, tmp_path):
    names = [
        write(tmp_path, "a.png", grey(9, 4)),
        write(tmp_path, "b.jpg", colour(30, 20)),
        write(tmp_path, "c.npy", colour(5, 5, channels=4)),
    ]
    assert read(names, ImageFormat((8, 6), 3)).shape == (3, 3, 8, 6)


# Arrays


@pytest.mark.parametrize(
    ("shape", "channels", "last"),
    [
        ((6, 5, 1), None, True),
        ((6, 5, 3), None, True),
        ((1, 6, 5), None, False),
        ((3, 6, 5), None, False),
        ((6, 5, 7), 7, True),
        ((7, 6, 5), 7, False),
        ((6, 5, 4), 4, True),
        ((4, 6, 5), 4, False),
        ((3, 6, 4), 3, False),
        ((3, 6, 1), 1, True),
        ((2, 6, 3), 2, False),
    ],
)
def test_where_the_channels_of_an_array_are(read, tmp_path, shape, channels, last):
    image = real(*shape)
    found = read([write(tmp_path, "a.npy", image)], ImageFormat(None, channels))
    assert np.array_equal(found[0], image.transpose(2, 0, 1) if last else image)


def test_a_fourth_channel_is_alpha(read, tmp_path):
    write(tmp_path, "a.npy", real(6, 5, 4))
    write(tmp_path, "b.npy", real(4, 6, 5))
    said = []
    found = read(["a.npy", "b.npy"], say=said.append)
    assert np.array_equal(found[0], real(6, 5, 4).transpose(2, 0, 1)[:3])
    assert np.array_equal(found[1], real(4, 6, 5)[:3])
    assert said == ["the alpha channel of images in column 'path' is left out"]


@pytest.mark.parametrize("kind", ["bool", "int8", ">u2", "int64", "float16", ">f4", "float64"])
def test_numbers_of_other_types_become_float32(read, tmp_path, kind):
    image = grey(6, 5).astype(kind)
    found = read([write(tmp_path, "a.npy", np.asfortranarray(image))])
    assert found.dtype == np.float32
    assert np.array_equal(found[0, 0], image.astype(np.float32))


def test_threads_read_headers_while_memory_is_collected(read, tmp_path):
    """Python 3.11 cannot parse in one thread what another one has begun to."""
    names = [write(tmp_path, f"{seed}.npy", grey(2, 2, seed)) for seed in range(60)]

    def give_way(*_):
        time.sleep(1e-5)

    thresholds = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(5)
    try:
        found = [read(names) for _ in range(4)]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(give_way)
    assert all(np.array_equal(item, found[0]) for item in found)


ROWS = [4, 0, 4, 2]


@pytest.mark.parametrize("rows", [ROWS, np.array(ROWS, float), pd.array(ROWS, "Int64")])
def test_rows_of_an_npy_file(read, tmp_path, rows):
    images = real(5, 6, 7)
    write(tmp_path, "all.npy", images)
    found = read(rows, ImageFormat(None, None, "all.npy"))
    assert np.array_equal(found[:, 0], images[ROWS])
    assert found.dtype == np.float32


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 3, 1, 2)])
def test_rows_of_an_npy_file_with_channels(read, tmp_path, axes):
    images = np.stack([colour(seed=seed) for seed in range(5)])
    write(tmp_path, "all.npy", images.transpose(axes))
    found = read(ROWS, ImageFormat(None, None, "all.npy"))
    assert np.array_equal(found, images[ROWS].transpose(0, 3, 1, 2))
    assert found.dtype == np.uint8
    assert read(ROWS, ImageFormat((3, 2), 1, "all.npy")).shape == (4, 1, 3, 2)


def test_only_the_rows_of_an_npy_file_that_are_needed_are_read(read, tmp_path):
    images = np.zeros((5, 4, 4))
    images[1] = np.nan
    write(tmp_path, "all.npy", images)
    assert np.all(read(ROWS, ImageFormat(None, None, "all.npy")) == 0)


def lists(images, kind, depth):
    """Return Arrow's nested lists of an array of images."""
    for _ in range(depth):
        kind = pa.list_(kind)
    return pa.array(images.tolist(), kind)


@pytest.mark.parametrize(
    ("shape", "depth", "to_channels_first"),
    [
        ((6, 5), 2, lambda x: x[:, None]),
        ((6, 5, 3), 3, lambda x: x.transpose(0, 3, 1, 2)),
        ((3, 6, 5), 3, lambda x: x),
        ((25,), 1, lambda x: x.reshape(-1, 1, 5, 5)),
        ((75,), 1, lambda x: x.reshape(-1, 3, 5, 5)),
        ((3,), 1, lambda x: x.reshape(-1, 3, 1, 1)),
    ],
)
@pytest.mark.parametrize("group", [2, 100])
def test_rows_of_a_parquet_file(read, tmp_path, shape, depth, to_channels_first, group):
    images = np.random.default_rng(0).integers(0, 256, (5, *shape), dtype=np.uint8)
    expected = to_channels_first(images)[ROWS]
    for kind, dtype in ((pa.uint8(), np.uint8), (pa.int64(), np.float32), (pa.float64(), "f4")):
        table = pa.table({"image": lists(images, kind, depth)})
        pq.write_table(table, tmp_path / "all.parquet", row_group_size=group)
        found = read(ROWS, ImageFormat(None, None, "all.parquet"))
        assert np.array_equal(found, expected)
        assert found.dtype == dtype


def test_flat_lists_of_a_given_number_of_channels(read, tmp_path):
    images = real(5, 4 * 9)
    pq.write_table(pa.table({"a.b": lists(images, pa.float32(), 1)}), tmp_path / "a.parquet")
    found = read(ROWS, ImageFormat(None, 4, "a.parquet"))
    assert np.array_equal(found, images[ROWS].reshape(4, 4, 3, 3))
    found = read(ROWS, ImageFormat(None, None, "a.parquet"))
    assert np.array_equal(found, images[ROWS].reshape(4, 1, 6, 6))


def test_a_parquet_file_by_pandas_with_fixed_or_large_lists(read, tmp_path):
    images = real(5, 9)
    frame = pd.DataFrame({"image": list(images)}, index=list("abcde"))
    frame.to_parquet(tmp_path / "a.parquet")
    for number, kind in enumerate((pa.list_(pa.float32(), 9), pa.large_list(pa.float32()))):
        table = pa.table({"image": pa.array(images.tolist(), kind)})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    for name in ("a.parquet", "0.parquet", "1.parquet"):
        found = read(ROWS, ImageFormat(None, None, name))
        assert np.array_equal(found, images[ROWS].reshape(4, 1, 3, 3))


def test_parquet_images_of_many_sizes_are_resized(read, tmp_path):
    images = [real(6, 5).tolist(), real(3, 9).tolist()]
    pq.write_table(pa.table({"image": images}), tmp_path / "a.parquet")
    found = read([1, 0], ImageFormat((4, 4), None, "a.parquet"))
    resized = Image.fromarray(real(3, 9)).resize((4, 4), Image.Resampling.BILINEAR)
    assert np.array_equal(found[0, 0], np.asarray(resized))


# Pieces


def test_a_file_that_several_rows_have_is_read_once(read, opened, tmp_path):
    names = [write(tmp_path, f"{seed}.png", grey(seed=seed)) for seed in range(3)]
    rows = [2, 0, 2, 1, 0, 2]
    found = read([f"./{names[row]}" if row else names[row] for row in rows])
    assert np.array_equal(found[:, 0], np.stack([grey(seed=row) for row in rows]))
    assert sorted(opened) == names


def test_progress_after_each_piece(read, tmp_path, monkeypatch):
    monkeypatch.setattr(pixels, "PIECE", 4)
    names = [write(tmp_path, f"{seed}.npy", grey(seed=seed)) for seed in range(10)]
    calls = []
    found = read([*names, *names], progress=lambda *call: calls.append(call))
    assert calls == [(4, 10), (8, 10), (10, 10)]
    assert np.array_equal(found[:, 0], np.stack([grey(seed=seed) for seed in [*range(10)] * 2]))
    write(tmp_path, "all.npy", real(10, 4, 4))
    for name in ("all.npy", "all.parquet"):
        calls.clear()
        pq.write_table(pa.table({"x": real(10, 4, 4).tolist()}), tmp_path / "all.parquet")
        wanted = ImageFormat(None, None, name)
        found = read(range(10), wanted, progress=lambda *call: calls.append(call))
        assert calls == [(4, 10), (8, 10), (10, 10)]
        assert np.array_equal(found[:, 0], real(10, 4, 4))


def test_a_piece_is_of_256(read, tmp_path):
    write(tmp_path, "all.npy", real(300, 2, 2))
    calls = []
    read(range(300), ImageFormat(None, None, "all.npy"), progress=lambda *call: calls.append(call))
    assert calls == [(256, 300), (300, 300)]


def test_pillows_warnings_are_again_what_they_were(read, tmp_path):
    with warnings.catch_warnings():
        before = list(warnings.filters)
        read([write(tmp_path, "a.png", grey())])
        assert warnings.filters == before


# What is refused of a column of paths


def test_missing_files_are_all_found_before_any_is_opened(refused, tmp_path, monkeypatch):
    write(tmp_path, "there.png", grey())
    monkeypatch.setattr(Image, "open", None)
    message = refused(["there.png", "images/a.png", "there.png", "b.jpg", "images/a.png"])
    assert message == (
        "3 images of column 'path' do not exist or are no files: row 2 (images/a.png), row 4 "
        f"(b.jpg), row 5 (images/a.png); relative paths count from '{tmp_path}'"
    )
    (tmp_path / "folder.png").mkdir()
    message = refused(["folder.png"])
    assert message.startswith("1 image of column 'path' does not exist or is no file: row 1 (fol")


def test_a_message_names_five_rows_and_shortens_what_is_long(refused, tmp_path):
    message = refused(["x" * 400 + ".png"] * 7)
    assert message.startswith("7 images of column 'path' do not exist")
    assert message.count("row ") == 5
    assert f"row 5 ({'x' * 20}...{'x' * 33}.png), ...; relative" in message


@pytest.mark.parametrize("value", [np.nan, "", 3, 2.5])
def test_rows_without_a_path(refused, tmp_path, value):
    write(tmp_path, "a.png", grey())
    message = refused(["a.png", value])
    assert message == (
        f"1 row of column 'path' has no path: row 2 ({value}); give that of "
        "an image in each row; for row numbers, name the file that has all images, as "
        "image(path, array='images.npy')"
    )


def test_a_column_without_rows(refused):
    assert refused([]) == "column 'path' has no rows, so that it has no images"


@pytest.mark.parametrize("url", ["https://x.org/a.png", "s3://b/a.png", "HTTP://x/a.png"])
def test_urls(refused, url):
    assert refused(["a.png", url]) == (
        f"1 image of column 'path' is not a local file: row 2 ({url}); download them, and give "
        "the paths of the copies"
    )


def test_files_of_another_kind(refused, tmp_path):
    message = refused(["a.gif", "b.png", "c", "d.tif"])
    assert message == (
        "3 images of column 'path' are no .png, .jpg, .jpeg or .npy files: row 1 (a.gif), row 3 "
        "(c), row 4 (d.tif); convert them to PNG"
    )


def damaged(folder):
    """Write files that cannot be read, each for another reason; return names and reasons."""
    write(folder, "whole.png", colour(40, 40))
    write(folder, "whole.jpg", colour(40, 40))
    write(folder, "whole.npy", real(40, 40))
    write(folder, "whole.gif", grey())
    whole = {kind: (folder / f"whole.{kind}").read_bytes() for kind in ("png", "jpg", "npy", "gif")}
    flipped = bytearray(whole["png"])
    flipped[60] ^= 255
    contents = {
        "half.png": (whole["png"][: len(whole["png"]) // 2], "truncated"),
        "half.jpg": (whole["jpg"][: len(whole["jpg"]) // 2], "truncated"),
        "half.npy": (whole["npy"][: len(whole["npy"]) // 2], "mmap length is greater"),
        "flipped.png": (bytes(flipped), "broken data stream"),
        "gif.png": (whole["gif"], "its content is neither PNG nor JPEG"),
        "text.jpg": (b"no image at all", "its content is neither PNG nor JPEG"),
        "empty.png": (b"", "its content is neither PNG nor JPEG"),
        "empty.npy": (b"", "EOF"),
        "text.npy": (b"no array at all", "magic string"),
        "open.npy": (whole["npy"].replace(b"}", b"("), "EOF"),
    }
    for name, (content, _) in contents.items():
        (folder / name).write_bytes(content)
    np.save(folder / "pickle.npy", np.array([{}]), allow_pickle=True)
    return {name: reason for name, (_, reason) in contents.items()} | {"pickle.npy": "objects"}


def test_files_that_cannot_be_read(refused, tmp_path):
    for name, reason in damaged(tmp_path).items():
        message = refused(["whole.png", name, name], ImageFormat((8, 8), 3))
        start = f"2 images of column 'path' cannot be read: row 2 ({name}: "
        assert message.startswith(start), message
        assert reason in message
        assert message.endswith("; mend or replace the files, or leave these rows out")
        assert str(tmp_path) not in message


def test_files_that_cannot_be_read_are_all_named_wherever_it_is_found(refused, tmp_path):
    names = [*damaged(tmp_path), "whole.png"]
    message = refused(names, ImageFormat((8, 8), 3))
    assert message.startswith(f"{len(names) - 1} images of column 'path' cannot be read: row 1 ")
    message = refused(["empty.png", "text.jpg"])
    assert message.startswith("2 images of column 'path' cannot be read: row 1 (empty.png: ")


def test_sizes_that_differ(refused, opened, tmp_path):
    names = [
        write(tmp_path, "a.png", grey(6, 5)),
        write(tmp_path, "b.png", grey(5, 6)),
        write(tmp_path, "c.npy", real(6, 6)),
    ]
    assert refused(names) == (
        "2 images of column 'path' are not 6 x 5 pixels (height x width), as that of row 1 is: row "
        "2 (b.png: 5 x 6), row 3 (c.npy: 6 x 6); have all of them resized, as image(path, size=32)"
    )
    assert opened == []


def test_a_turned_image_has_another_size(refused, read, tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    write(tmp_path, "a.png", grey(6, 5))
    write(tmp_path, "b.png", grey(6, 5), exif=exif)
    assert "row 2 (b.png: 5 x 6)" in refused(["a.png", "b.png"])
    write(tmp_path, "c.png", grey(5, 6), exif=exif)
    assert read(["a.png", "c.png"]).shape == (2, 1, 6, 5)


def test_channels_that_differ(refused, opened, tmp_path):
    names = write(tmp_path, "a.png", grey()), write(tmp_path, "b.png", colour())
    assert refused(names) == (
        "1 image of column 'path' has not 1 channel, as that of row 1 has: row 2 (b.png: 3); say "
        "what all of them should be: image(path, channels=1) for grey, image(path, channels=3) for "
        "colour"
    )
    assert opened == []


def test_channels_that_files_cannot_have(refused, tmp_path):
    assert refused([write(tmp_path, "a.png", colour())], ImageFormat(None, 5)) == (
        "1 image of column 'path' cannot have 5 channels: row 1 (a.png: 3); grey (1) and colour "
        "(3) can become each other; else give the number that the images have"
    )


@pytest.mark.parametrize(
    "shape", [(5,), (1, 2, 6, 5), (6, 5, 7), (3, 5, 3), (1, 6, 3), (3, 6, 4), (0, 4), (3, 0, 4)]
)
def test_arrays_of_no_image(refused, tmp_path, shape):
    write(tmp_path, "a.png", colour())
    write(tmp_path, "b.npy", np.zeros(shape))
    assert refused(["a.png", "b.npy"]) == (
        f"1 image of column 'path' has not the shape of an image: row 2 (b.npy: {shape}); expected "
        "(H, W), (H, W, C) or (C, H, W), where C is 1 or 3, or the number that is given as "
        "image(path, channels=5), and only one of the first and the last axis could be C"
    )


@pytest.mark.parametrize("kind", ["complex64", "U3", "datetime64[s]"])
def test_arrays_of_no_numbers(refused, tmp_path, kind):
    write(tmp_path, "a.npy", np.zeros((6, 5), kind))
    message = refused(["a.npy"])
    assert message.startswith("1 image of column 'path' has no real numbers: row 1 (a.npy: ")
    assert message.endswith("; write them as uint8 or float32")


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e300])
def test_values_that_are_not_finite(refused, tmp_path, bad):
    image = np.zeros((6, 5))
    write(tmp_path, "a.npy", image)
    image[2, 3] = bad
    write(tmp_path, "b.npy", image)
    assert refused(["a.npy", "b.npy", "b.npy"]) == (
        "2 images of column 'path' have values that are not finite: row 2 (b.npy: 1 of 30), row 3 "
        "(b.npy: 1 of 30); mend the images, or leave these rows out"
    )


# What would need too much memory


@pytest.mark.parametrize("side", [10_000, 20_000])  # Pillow warns, or refuses
def test_files_that_decompress_to_very_many_pixels(refused, opened, tmp_path, side):
    write(tmp_path, "a.png", colour())
    (tmp_path / "b.png").write_bytes(png(side, side))
    message = refused(["a.png", "b.png"], ImageFormat((8, 8), 3))
    assert message.startswith(
        "1 image of column 'path' is too large to be read: row 2 (b.png: Image size "
        f"({side**2} pixels) exceeds limit of "
    )
    assert message.endswith(
        "; write smaller files: an image is read whole before image(path, size=32) shrinks it"
    )
    assert opened == []


def test_arrays_with_very_many_numbers(refused, opened, tmp_path):
    write(tmp_path, "a.npy", grey())
    with (tmp_path / "b.npy").open("wb") as file:
        file.write(npy_header((20_000, 20_000)))
        file.truncate(20_000**2 + 1000)  # a sparse file
    message = refused(["a.npy", "b.npy"], ImageFormat((8, 8), 1))
    assert message.startswith(
        "1 image of column 'path' is too large to be read: row 2 (b.npy: 1 x 20000 x 20000 numbers "
        "are more than 268435456); write smaller files"
    )
    assert opened == []


def test_headers_that_claim_more_than_there_is(refused, tmp_path):
    (tmp_path / "a.npy").write_bytes(npy_header((10**5, 10**5, 3)))
    (tmp_path / "b.npy").write_bytes(npy_header((10**30, 10**5, 3)))
    message = refused(["a.npy", "b.npy"], ImageFormat((8, 8), 3))
    assert message.startswith("2 images of column 'path' cannot be read: row 1 (a.npy: mmap length")


def test_images_that_together_are_too_large(refused, opened, tmp_path, monkeypatch):
    write(tmp_path, "a.png", colour())
    message = refused(["a.png"] * 1000, ImageFormat((1000, 2000), 3))
    assert message == (
        "1000 images of 3 x 1000 x 2000 numbers (channels x height x width) in column 'path' need "
        "5.59 GiB, and at most 4 GiB are allowed; make them smaller, as image(path, size=1196), or "
        "use fewer rows"
    )
    assert opened == []
    write(tmp_path, "all.npy", real(2, 6, 5))
    monkeypatch.setattr(pixels, "MOST_BYTES", 200)
    message = refused([0, 1], ImageFormat(None, None, "all.npy"), "i")
    assert message.endswith("as image(i, array='all.npy', size=5), or use fewer rows")


# What is refused of a column of row numbers


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([0, 5, -1], "row 2 (5), row 3 (-1)"),
        ([1.5, 0.0, np.nan], "row 1 (1.5), row 3 (nan)"),
        ([np.inf, 0.0, 1e300], "row 1 (inf), row 3 (1e+300)"),
        (["0", "b.png"], "row 1 (0), row 2 (b.png)"),
        ([True, False], "row 1 (True), row 2 (False)"),
    ],
)
def test_numbers_of_no_rows(refused, tmp_path, rows, named):
    write(tmp_path, "all.npy", real(5, 6, 7))
    assert refused(rows, ImageFormat(None, None, "all.npy"), "i") == (
        f"2 rows of column 'i' have no whole number from 0 to 4: {named}; the column must have "
        "numbers of rows in 'all.npy', and the first row is 0"
    )


def test_a_file_of_images_that_is_missing_or_of_another_kind(refused, tmp_path):
    assert refused([0], ImageFormat(None, None, "all.npy"), "i") == (
        "the images of column 'i' should be in 'all.npy', which does not exist or is no file; a "
        f"relative path counts from '{tmp_path}'"
    )
    message = refused([0], ImageFormat(None, None, "all.csv"))
    assert message == (
        f"a file of images must be a .npy or .parquet file, got '{tmp_path / 'all.csv'}'"
    )


@pytest.mark.parametrize("shape", [(5,), (5, 6), (5, 1, 3, 6, 7)])
def test_a_file_of_images_with_other_axes(refused, tmp_path, shape):
    write(tmp_path, "all.npy", np.zeros(shape))
    assert refused([0], ImageFormat(None, None, "all.npy")) == (
        f"file of images '{tmp_path / 'all.npy'}' must have the axes (N, H, W), (N, H, W, C) or "
        f"(N, C, H, W), got {len(shape)} axes: {shape}"
    )


def test_a_file_of_images_whose_axes_cannot_be_told(refused, tmp_path):
    write(tmp_path, "all.npy", np.zeros((5, 3, 8, 3)))
    message = refused([0, 4], ImageFormat(None, None, "all.npy"))
    assert message.startswith(
        "2 images of column 'path' have not the shape of an image: row 1 (0: (3, 8, 3)), row 2 (4: "
    )


@pytest.mark.parametrize("name", ["all.npy", "all.parquet"])
@pytest.mark.parametrize("content", [b"", b"neither of both"])
def test_a_file_of_images_that_cannot_be_read(refused, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    message = refused([0], ImageFormat(None, None, name))
    assert message.startswith(f"file of images '{tmp_path / name}' cannot be read: ")


def test_a_parquet_file_with_broken_pages(refused, tmp_path):
    images = real(200, 8, 8)
    pq.write_table(pa.table({"x": images.tolist()}), tmp_path / "a.parquet", use_dictionary=False)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[4:400] = b"\xff" * 396
    (tmp_path / "a.parquet").write_bytes(content)
    message = refused(range(200), ImageFormat(None, None, "a.parquet"))
    assert message.startswith(f"file of images '{tmp_path / 'a.parquet'}' cannot be read: ")


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [[1, 2]], "b": [[1, 2]]},
        {"a": [1, 2]},
        {"a": [["x"]]},
        {"a": [[[[[1]]]]]},
    ],
)
def test_a_parquet_file_of_no_lists(refused, tmp_path, columns):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    message = refused([0], ImageFormat(None, None, "a.parquet"))
    assert message.startswith(
        f"file of images '{tmp_path / 'a.parquet'}' must have one column, of lists of numbers "
        "nested up to three deep, got: a ("
    )


def test_flat_lists_of_no_squares(refused, tmp_path):
    pq.write_table(pa.table({"x": [[1.0] * 9, [1.0] * 10, []]}), tmp_path / "a.parquet")
    assert refused([0, 1, 2], ImageFormat(None, None, "a.parquet")) == (
        "2 images of column 'path' are flat lists, but of no squares: row 2 (1: 10 numbers), row 3 "
        "(2: 0 numbers); a square has n * n numbers, or 3 * n * n with the channels first; write "
        "nested lists (rows of pixels) or a .npy file"
    )


def test_lists_that_are_not_regular(refused, tmp_path):
    images = [[[1.0, 2.0], [1.0]], None, [[1.0, 2.0], [3.0, 4.0]]]
    pq.write_table(pa.table({"x": images}), tmp_path / "a.parquet")
    assert refused([0, 1, 2], ImageFormat(None, None, "a.parquet")) == (
        "2 images of column 'path' are no lists of equally long lists: row 1 (0: the lists at "
        "depth 2 have lengths 1, 2), row 2 (1: null); write each image as a list of its rows, or "
        "write a .npy file"
    )


def test_parquet_images_that_differ_or_have_gaps(refused, tmp_path):
    images = [real(4, 4).tolist(), real(4, 5).tolist(), [[None, 1.0], [2.0, 3.0]]]
    pq.write_table(pa.table({"x": images}), tmp_path / "a.parquet")
    message = refused([1, 0], ImageFormat(None, None, "a.parquet"))
    assert message == (
        "1 image of column 'path' is not 4 x 4 pixels (height x width), as that of row 2 is: row 1 "
        "(1: 4 x 5); have all of them resized, as image(path, array='a.parquet', size=32)"
    )
    message = refused([0, 2], ImageFormat((4, 4), None, "a.parquet"))
    assert "1 image of column 'path' has values that are not finite: row 2 (2: 1 of 4)" in message
