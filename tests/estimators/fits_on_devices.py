"""Fits on one and on several virtual devices of the CPU, in a process of its own: prints how far they are apart.

KERAS_BACKEND=jax python tests/estimators/fits_on_devices.py WEIGHTS [--others]

With ``--others`` one fit of each of the other estimators, in a process of their own.
"""

import os
import sys

# TensorFlow takes twice as long to compile for four devices as for two. The last batch leaves a device without rows.
N_DEVICES = 4 if os.environ["KERAS_BACKEND"] == "jax" else 2
if os.environ["KERAS_BACKEND"] == "jax":
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={N_DEVICES}"
else:
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * N_DEVICES)

import functools  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import unittest.mock  # noqa: E402
import warnings  # noqa: E402
from itertools import starmap  # noqa: E402
from pathlib import Path  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from kbert import BertClassifier, BertMultipleChoice, BertQA, BertRegressor, BertTagger  # noqa: E402
from kbert.training.backends import backend_step  # noqa: E402
from kbert.training.distribution import all_devices, n_devices, trainer_on  # noqa: E402
from kbert.training.losses import softmax_cross_entropy  # noqa: E402

TEXTS = [
    "the table was great and the room was great",
    "a sad chair",
    "the room",
    "sad table",
    "this room was lovely",
    "it was awful with the chair and a table and the sad room it was",
    "happy",
]
LABELS = ["good", "bad", "good", "bad", "good", "bad", "good"]
OPTIONS = pd.DataFrame({"context": TEXTS, "options": [["a table", "a room", "a sad chair"]] * len(TEXTS)})

# Each fills a row of a batch, so that a batch of three gives every device some, and the last one has a single row.
LONG = [(TEXTS[0].split() * 2)[i : i + 10 - i] for i in range(4)]
ANSWERS = pd.DataFrame({"answer": [words[-1] for words in LONG]})
ANSWERS["answer_start"] = [len(" ".join(words[:-1])) + 1 for words in LONG]
THINGS = [["B-X" if word in ("table", "room") else "O" for word in words] for words in LONG]
OTHERS = {
    "numbers": (BertRegressor, (list(map(" ".join, LONG)), [0.0, 1.0, 0.5, 2.0]), {"head_start": "random"}),
    "tags": (BertTagger, (LONG, THINGS), {}),
    "answers": (BertQA, (pd.DataFrame({"question": "great", "context": list(map(" ".join, LONG))}), ANSWERS), {}),
}


@functools.cache
def on(n):
    """A distribution over n devices."""
    if keras.backend.backend() == "jax":
        return keras.distribution.DataParallel(devices=keras.distribution.list_devices()[:n])
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(n)])


def divided():
    """The ModelParallel of the documentation, on four devices: two parts of the rows, two of the weights."""
    pages = (Path(__file__).parents[2] / "docs").rglob("*.md")
    (page,) = (
        text for text in (page.read_text(encoding="utf-8") for page in pages) if "keras.distribution.LayoutMap(" in text
    )
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "LayoutMap(" in code)
    names = {}
    exec(block.partition("BertClassifier(")[0], names)
    return names["divided"]


def checks_of_divided(cases, alone):
    """Fits with divided weights: how far each is from one device, and what else must be 0."""
    found = {f"{name} divided": apart(alone[name], fitted_case(case, divided())) for name, case in cases.items()}
    one, two = alone["windows"], divided()
    values = trainer_on(two, one.model_, softmax_cross_entropy, "adamw").values
    on_first, whole = (
        sum(value.nbytes for value in part) for part in ([v.addressable_data(0) for v in values], values)
    )
    found["memory"] = 0 if on_first < 0.7 * whole else 1  # 0.58, and with a pooler, which is not divided, 0.61
    # In force, so that the model's own weights are divided; and what is predicted with them afterwards.
    keras.distribution.set_distribution(two)
    automatic = fitted_case(cases["windows"], "auto")
    shares = [automatic.predict_proba(TEXTS)]
    keras.distribution.set_distribution(None)
    shares += [automatic.set_params(distribution=None).predict_proba(TEXTS), one.predict_proba(TEXTS)]
    found["divided in force"] = max(apart(one, automatic), float(np.ptp(shares, axis=0).max()))
    for mesh, key, wrong in [
        ((1, 3), ".*query/kernel", "cannot be divided by"),
        ((1, 2), "qvery", "no key of the LayoutMap"),
    ]:
        mesh = keras.distribution.DeviceMesh(mesh, ("batch", "model"), keras.distribution.list_devices()[: mesh[1]])
        layouts = keras.distribution.LayoutMap(mesh)
        layouts[key] = (None, "model")
        try:
            fitted_case(cases["windows"], keras.distribution.ModelParallel(layout_map=layouts))
        except ValueError as error:
            assert wrong in str(error), error
            found[wrong] = 0
    return found


def fitted(estimator, rows, distribution, **changes):
    """A fit whose steps have three rows, the last one of them a single row."""
    values = dict(epochs=2, batch_size=3, learning_rate=1e-3, dropout=0.0, dtype="float32", random_state=0)
    return estimator(weights=sys.argv[1], distribution=distribution, **{**values, **changes}).fit(*rows)


def fitted_case(case, distribution):
    """A fit of an estimator, its rows and its parameters."""
    estimator, rows, changes = case
    return fitted(estimator, rows, distribution, **changes)


def apart(one, other):
    """The greatest difference of losses and of weights."""
    losses = np.subtract(one.history_["loss"], other.history_["loss"])
    weights = [
        np.abs(keras.ops.convert_to_numpy(a.value) - keras.ops.convert_to_numpy(b.value)).max()
        for a, b in zip(one.model_.weights, other.model_.weights, strict=True)
        if a.dtype == "float32"
    ]
    return float(max(np.abs(losses).max(), *weights))


def predicts_the_same(classifier):
    """Whether devices that take the batches in turns give what one gives, in order and to the last bit."""
    texts = [" ".join(text.split()[i % 3 :] * (1 + i % 5)) for i in range(400) for text in TEXTS]
    seen = set()
    call = backend_step().predictor

    def predictor(model, devices=()):
        predict = call(model, devices)

        def noted(inputs):
            outputs = predict(inputs)
            seen.add(str(getattr(outputs, "device", None)))
            return outputs

        return noted

    with unittest.mock.patch.object(backend_step(), "predictor", predictor):
        several = classifier.set_params(distribution=on(N_DEVICES)).predict_proba(texts)
    assert len(seen) == N_DEVICES, seen
    return np.array_equal(several, classifier.set_params(distribution=None).predict_proba(texts))


def apart_on_two(name, case):
    """How far two devices are from one, after an epoch."""
    estimator, rows, changes = case
    alone, two = (fitted(estimator, rows, some, max_length=16, epochs=1, **changes) for some in (None, on(2)))
    return f"{name} on 2", apart(alone, two)


def main():
    """Print the differences as JSON, by case."""
    warnings.simplefilter("ignore")
    if "--others" in sys.argv:
        print(json.dumps(dict(starmap(apart_on_two, OTHERS.items()))))
        return
    is_jax = keras.backend.backend() == "jax"
    options = (BertMultipleChoice, (OPTIONS, [0, 1, 2, 0, 1, 2, 0]), {"max_length": 24})
    cases = {
        "windows": (BertClassifier, (TEXTS, LABELS), {"max_length": 8, "long_text": "window"}),
        "frozen": (BertClassifier, (TEXTS, LABELS), {"max_length": 16, "freeze": 1}),
        **({"options": options} if is_jax else {}),
    }
    alone, several = (
        {name: fitted_case(case, distribution) for name, case in cases.items()}
        for distribution in (None, on(N_DEVICES))
    )
    found = {f"{name} on several": apart(alone[name], several[name]) for name in cases}
    if is_jax:
        found |= checks_of_divided(cases, alone)
        found["auto"] = apart(several["windows"], fitted_case(cases["windows"], "auto"))
        keras.distribution.set_distribution(on(N_DEVICES))
        found["one beside one in force"] = apart(alone["windows"], fitted_case(cases["windows"], None))
        keras.distribution.set_distribution(None)
    else:
        expected = alone["windows"].predict_proba(TEXTS)
        with on(N_DEVICES).scope():  # in which variables are of another kind than those that the code was compiled for
            found["in force"] = n_devices(all_devices()) - N_DEVICES
            automatic, one = (fitted_case(cases["windows"], distribution) for distribution in ("auto", None))
            found["predicting in a scope"] = float(np.ptp([alone["windows"].predict_proba(TEXTS), expected], 0).max())
        found["auto in a scope"], found["one in a scope"] = (
            apart(several["windows"], automatic),
            apart(alone["windows"], one),
        )
        try:
            fitted_case(options, on(N_DEVICES))
        except ValueError as error:
            assert "compares the texts of a batch" in str(error)
            found["refused"] = 0
    found["predicting"] = 0 if predicts_the_same(alone["windows"]) else 1
    print(json.dumps(found))


if __name__ == "__main__":
    main()
