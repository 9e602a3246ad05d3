import pytest

from semistan.errors import InputError
from semistan.posterior.options import EffectOptions, PredictOptions


def test_options_are_given_by_keyword_and_have_defaults():
    assert PredictOptions.of({}) == PredictOptions()
    assert PredictOptions.of({"interval": 0.5}).interval == 0.5
    assert EffectOptions.of({"kind": "conditional", "at": {"g": "b"}}).at == {"g": "b"}


@pytest.mark.parametrize(
    ("record", "given", "message"),
    [
        (PredictOptions, {"intervall": 0.9}, "no option 'intervall'. Did you mean 'interval'"),
        (PredictOptions, {"interval": 95}, "between 0 and 1, got 95"),
        (EffectOptions, {"kind": "condtional"}, "Did you mean 'conditional'"),
        (EffectOptions, {"at": {"g": "b"}}, "only a conditional effect holds columns"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(record, given, message):
    with pytest.raises(InputError, match=message):
        record.of(given)


def test_a_part_is_one_of_the_linear_predictor():
    assert PredictOptions().what == "epred"
    assert PredictOptions(part="nn").what == "linpred"
    assert PredictOptions("predict", "nn").what == "predict"
