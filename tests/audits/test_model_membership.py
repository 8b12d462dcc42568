"""Membership in trained models: an overfitted one is found, coins are not, a private one stays under its bound."""

import numpy as np
import pytest

from deniable.attacks.membership import bound_members_found, claim_by_loss, claim_by_shadow_losses, convert_to_logits
from deniable.errors import ParameterError

MANY, FEW, EPSILON = 1000, 40, 1.0


def people(count, seed, features=MANY):
    """Unit vectors with coins for labels: whatever a model knows of them it has by heart."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, features))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, np.where(rng.random(count) < 0.5, 1.0, -1.0)


def trained(x, y, penalty, rounds=300):
    """Logistic regression by gradient descent: the mean of ln(1 + e^(-y w.x)) and penalty/2 |w|^2."""
    weights = np.zeros(x.shape[1])
    for _ in range(rounds):
        slope = -(x * (y / (1 + np.exp(y * (x @ weights))))[:, None]).mean(axis=0) + penalty * weights
        weights -= slope / (0.25 + penalty)
    return weights


def private(x, y, penalty, seed):
    """Output perturbation (Chaudhuri, Monteleoni, Sarwate 2011): replacing a row moves w by 2/(n penalty) at most, so
    noise of density e^(-epsilon |b| n penalty / 2) gives epsilon."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=x.shape[1])
    length = rng.gamma(x.shape[1], 2 / (len(x) * penalty * EPSILON))
    return trained(x, y, penalty) + length * direction / np.linalg.norm(direction)


def losses(weights, x, y):
    return np.log1p(np.exp(-y * (x @ weights)))


IN, OUT = people(60, 1), people(4000, 2)  # 60 records in 1,000 directions: each is learned by itself
OVERFITTED = trained(*IN, penalty=1e-4, rounds=1000)


def test_an_overfitted_model_gives_its_training_records_away():
    found = claim_by_loss(losses(OVERFITTED, *IN), losses(OVERFITTED, *OUT))
    assert found.figures["area"] > 0.95
    assert found.attack.interval.low > 3 * found.control.interval.high
    one, tenth = (found.figures[f"found_at_{alarm}"] for alarm in ("0.01", "0.001"))
    assert one["share"] >= tenth["share"]
    assert 0 < one["low"] <= one["share"] <= one["high"]


def test_coins_for_members_are_at_the_baseline():
    """Who was inside is drawn afresh: the same losses, and nothing to find."""
    everybody = np.concatenate([losses(OVERFITTED, *IN), losses(OVERFITTED, *OUT)])
    inside = np.random.default_rng(3).random(len(everybody)) < 0.5
    found = claim_by_loss(everybody[inside], everybody[~inside])
    assert abs(found.figures["area"] - 0.5) < 0.05
    assert found.attack.interval.low <= 0.01 + 0.005
    assert found.trusted == ()


def test_a_private_model_stays_under_the_bound_of_its_epsilon_where_the_same_without_noise_does_not():
    hidden = private(*IN, penalty=0.01, seed=4)
    found = claim_by_loss(losses(hidden, *IN), losses(hidden, *OUT))
    for alarm in (0.01, 0.001):
        assert found.figures[f"found_at_{alarm:g}"]["low"] <= bound_members_found(alarm, EPSILON)
    bare = claim_by_loss(losses(OVERFITTED, *IN), losses(OVERFITTED, *OUT))
    assert bare.figures["found_at_0.01"]["low"] > bound_members_found(0.01, EPSILON)


def shadowed(train, records, models=24, seed=5):
    """Losses of models trained on random halves; the last one plays the victim."""
    rng = np.random.default_rng(seed)
    x, y = people(records, 6, FEW)
    x[::2, 0] += 3 * y[::2]  # every second record is easy for every model: its loss alone says nothing
    inside = rng.permuted(np.tile(np.arange(records) < records // 2, (models + 1, 1)), axis=1)
    made = np.array([losses(train(x[chosen], y[chosen]), x, y) for chosen in inside])
    return made[:-1], inside[:-1], made[-1], inside[-1]


def test_shadow_models_find_more_than_one_threshold_for_all():
    told = shadowed(lambda x, y: trained(x, y, 1e-4, 1000), 300)
    by_ratio = claim_by_shadow_losses(*told)
    plain = claim_by_loss(told[2][told[3]], told[2][~told[3]])
    assert by_ratio.figures["area"] > plain.figures["area"] + 0.02


def test_shadow_models_learn_nothing_from_a_private_model_beyond_its_bound():
    seeds = iter(range(100))
    told = shadowed(lambda x, y: private(x / 4, y, 0.01, next(seeds)), 300)  # rows of norm 1 at most
    found = claim_by_shadow_losses(*told)
    assert found.figures["found_at_0.01"]["low"] <= bound_members_found(0.01, EPSILON)
    assert abs(found.figures["area"] - 0.5) < 0.1


def test_logits_of_losses_keep_tiny_ones_apart():
    assert convert_to_logits(np.array([np.log(2)]))[0] == pytest.approx(0)
    assert np.all(np.diff(convert_to_logits(np.array([1e-9, 1e-6, 0.1, 1.0, 30.0]))) < 0)
    assert np.isfinite(convert_to_logits(np.array([0.0]))).all()


def test_the_bound_is_that_of_the_game():
    assert bound_members_found(0.0, 3.0) == 0
    assert bound_members_found(0.3, 0.0) == pytest.approx(0.3)
    assert bound_members_found(0.01, 1000.0) == 1
    assert bound_members_found(0.0, 1.0, 0.1) == pytest.approx(0.1)
    with pytest.raises(ParameterError):
        bound_members_found(2.0, 1.0)


def test_what_is_no_loss_or_no_shadow_is_refused():
    with pytest.raises(ParameterError, match="not a number"):
        claim_by_loss(np.array([np.nan]), np.zeros(5))
    with pytest.raises(ParameterError, match="do not agree"):
        claim_by_shadow_losses(np.zeros((4, 3)), np.zeros((4, 2), bool), np.zeros(3), np.zeros(3, bool))
    with pytest.raises(ParameterError, match="in every shadow model"):
        claim_by_shadow_losses(np.zeros((4, 3)), np.ones((4, 3), bool), np.zeros(3), np.zeros(3, bool))
