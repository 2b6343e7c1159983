"""JSON of people and programs is read strictly, in a time proportional to its length."""

import time

import pytest

from kcover import reasons
from kcover.values import strict_json


def test_a_duplicate_key_at_the_end_of_many_is_found_at_once() -> None:
    keys = ",".join(f'"{number}":0' for number in range(150_000))
    began = time.process_time()
    with pytest.raises(reasons.ExplainedError) as refused:
        strict_json.loads(f'{{{keys},"x":0,"x":0}}')
    assert refused.value.reason == reasons.of("json_duplicate_key", key='"x"')
    assert time.process_time() - began < 60  # comparing each key with all others takes 2 min on a fast machine
