"""Coverage-guided fuzzing of the readers by atheris, which is installed apart.

    pip install atheris
    cd tests && python -m fuzz.explore formula --runs 100000 --findings findings

Every input that raises anything but an error of ours is written to the findings, once for each kind
of exception and place; put it into corpus/NAME/ when it is mended, where the tests read it.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import traceback
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["semistan"]):
    from fuzz import targets

SLOW = 5.0  # seconds, of processor time, that an input may take


def main() -> None:
    """Run one target on as many inputs as are asked for, and print how many there were."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=targets.TARGETS)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--longest", type=int, default=600, help="bytes of an input")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    given = parser.parse_args()
    given.findings.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    ran = 0

    def note(kind: str, content: bytes) -> None:
        key = hashlib.sha256(kind.encode()).hexdigest()[:12]
        if key not in seen:
            seen.add(key)
            (given.findings / f"{given.target}-{key}").write_bytes(content)
            print(f"FOUND {given.target}-{key}: {kind}", flush=True)

    def one(content: bytes) -> None:
        nonlocal ran
        ran += 1
        started = time.process_time()
        try:
            targets.attempt(given.target, content)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            note(f"{type(error).__name__} at {place.filename}:{place.lineno}", content)
        if time.process_time() - started > SLOW:
            note("slow", content)
        if ran % 10_000 == 0 or ran == given.runs:
            print(f"{given.target}: {ran} inputs, {len(seen)} findings", flush=True)

    grown = given.findings / f"corpus-{given.target}"  # what reached new code; goes on from there
    grown.mkdir(exist_ok=True)
    options = [
        f"-runs={given.runs}",
        f"-max_len={given.longest}",
        "-verbosity=0",
        "-rss_limit_mb=0",
    ]
    folders = [str(grown), str(targets.CORPUS / given.target)]
    atheris.Setup([sys.argv[0], *options, *folders], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
