"""The hash of a record: of what is read again, whatever kinds of keys it was written from."""

import json

from semistan.bundle.seal import digest


def test_the_hash_of_a_record_is_that_of_its_file():
    content = {"plan": {"milliseconds": {25: 1.5, 100: 0.5, 50: 1.0}}, "b": (1, 2), "a": None}
    assert digest(json.loads(json.dumps(content))) == digest(content)
    changed = {"plan": {"milliseconds": {25: 1.5, 100: 0.5, 50: 1.1}}, "b": (1, 2), "a": None}
    assert digest(changed) != digest(content)
