"""Records of bundles and runs, written anew with a seal that fits: what a forger would do."""

import json

from semistan.bundle.seal import FILES, read_stamps, stamp_of, write_record

RECORDS = ("manifest.json", "bundle.json")


def record_in(folder):
    """Return the path of a folder's record."""
    return next(folder / name for name in RECORDS if (folder / name).is_file())


def rewrite(folder, change=lambda content: content, lost=()):
    """Write a folder's record with another content, and stamps of its files as they now are.

    ``change`` gets the content and returns another, or changes it; keys in ``lost`` are left out.
    """
    path = record_in(folder)
    content = json.loads(path.read_text())
    content = change(content) or content
    names = read_stamps(path, content) if FILES in content else {}
    stamps = {name: stamp_of(folder / name) for name in names if (folder / name).is_file()}
    write_record(path, {key: content[key] for key in content if key not in lost}, stamps)
