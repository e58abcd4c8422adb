"""Every warning points at the user's own line: here, at a line of this file.

To add one, write a function with the decorator `warns`, in which the warning is issued. It is called with a folder of
its own that holds toy models.
"""

import ast
import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import keras
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import kbert
from kbert import (
    BertClassifier,
    BertConfig,
    BertEncoder,
    BertForPreTraining,
    BertMultipleChoice,
    BertPretrainer,
    BertQA,
    BertRegressor,
    BertTagger,
    BertVectorizer,
    WordPieceTokenizer,
    datasets,
    predict_table,
)
from kbert.data.labels import label_column
from kbert.data.texts import text_columns
from kbert.errors import (
    CheckpointWarning,
    DatasetWarning,
    DivergedError,
    FailedRunWarning,
    IncompleteWarning,
    InexactWarning,
    KbertWarning,
    LabelNamesWarning,
    LabelsWarning,
    MissingTextWarning,
    NewWeightsWarning,
    NewWordsWarning,
    ParameterWarning,
    TruncationWarning,
    UnderfitWarning,
    UnknownWordsWarning,
    VocabularyWarning,
)
from kbert.hub import packages, resolve_folder, uploads
from kbert.model import BertForSequenceClassification
from kbert.pretraining import Corpus
from kbert.tasks.row_notices import RowsRead, tell_missing
from kbert.tasks.texts import TextReader
from kbert.text.files import check_vocabulary
from kbert.weights import save_sequence_classifier
from kbert.weights.convert import convert

pytestmark = pytest.mark.slow

TOY = BertConfig(
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)


class Case(NamedTuple):
    name: str
    trigger: Callable[[Path], object]
    category: type[Warning]
    match: str


CASES: list[Case] = []


def warns(category: type[Warning], match: str):
    """Add a function to the table. ``match`` is a part of the message."""

    def add(trigger):
        CASES.append(Case(trigger.__name__, trigger, category, match))
        return trigger

    return add


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A folder with a toy encoder and its tokenizer in "model", and a classifier in "classifier"."""
    folder = tmp_path_factory.mktemp("toy")
    keras.utils.set_random_seed(0)  # its weights would depend on the tests before
    tokenizer = WordPieceTokenizer.train(["the quick brown fox jumps over the lazy dog"] * 5, vocab_size=60)
    config = BertConfig.from_dict({**TOY.to_dict(), "vocab_size": tokenizer.vocab_size})
    BertEncoder(config).save_pretrained(folder / "model")
    classifier = BertForSequenceClassification(config, 2)
    labels = {0: "good", 1: "bad"}
    save_sequence_classifier(classifier, folder / "classifier", labels, "single_label_classification")
    tokenizer.save(folder / "model")
    tokenizer.save(folder / "classifier")
    return folder


def change_json(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


# --- Weights


@warns(NewWeightsWarning, "has no pooler")
def an_encoder_without_a_pooler(folder):
    BertForPreTraining(TOY, nsp=False).save_pretrained(folder / "new")
    remove_arrays(folder / "new", "bert.pooler.")
    return BertEncoder.from_pretrained(folder / "new")


def remove_arrays(folder, prefix):
    from safetensors.numpy import load_file, save_file

    path = folder / "model.safetensors"
    arrays = {name: array for name, array in load_file(path).items() if not name.startswith(prefix)}
    save_file(arrays, path, {"format": "pt"})


@warns(NewWeightsWarning, "no masked-LM head")
def pre_training_from_an_encoder(folder):
    return BertForPreTraining.from_pretrained(folder / "model")


@warns(NewWeightsWarning, "no masked-LM head")
def an_estimator_that_starts_from_an_encoder(folder):
    return BertPretrainer(weights=folder / "model", max_length=24, max_steps=1).fit(["the quick fox"] * 4)


@warns(KbertWarning, "knows no activation")
def an_activation_that_google_lacks(folder):
    change_json(folder / "model" / "config.json", hidden_act="gelu_new")
    return convert(folder / "model", folder / "new", "google")


@warns(KbertWarning, "LayerNorm's epsilon fixed at 1e-12")
def an_epsilon_that_google_lacks(folder):
    change_json(folder / "model" / "config.json", layer_norm_eps=1e-6)
    return convert(folder / "model", folder / "new", "google")


@warns(InexactWarning, "Google's code, which reads vocab.txt alone")
def a_tokenizer_that_google_lacks(folder):
    change_json(folder / "model" / "tokenizer.json", pre_tokenizer={"type": "WhitespaceSplit"})
    return convert(folder / "model", folder / "new", "google")


@warns(InexactWarning, "The tokenizer is left out")
def a_tokenizer_that_kerashub_lacks(folder):
    change_json(folder / "model" / "config.json", hidden_act="gelu_new")
    change_json(folder / "model" / "tokenizer.json", pre_tokenizer={"type": "WhitespaceSplit"})
    return convert(folder / "model", folder / "new", "kerashub")


@warns(InexactWarning, "Not the same in KerasHub")
def an_activation_that_kerashub_lacks(folder):
    return convert(folder / "model", folder / "new", "kerashub")


@warns(InexactWarning, "The masked-LM head in")
def a_masked_lm_of_kerashub(folder):
    config = BertConfig.from_dict({**TOY.to_dict(), "hidden_act": "gelu_new"})
    BertForPreTraining(config, nsp=False).save_pretrained(folder / "new")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactWarning)
        convert(folder / "new", folder / "preset", "kerashub")
    path = folder / "preset" / "config.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "kbert"}))
    return BertForPreTraining.from_pretrained(folder / "preset", nsp=False)


@warns(LabelNamesWarning, "they become LABEL_0 to LABEL_1")
def label_names_that_do_not_fit_when_converting(folder):
    change_json(folder / "classifier" / "config.json", id2label={"0": "good"})
    return convert(folder / "classifier", folder / "new", "hf")


@warns(LabelNamesWarning, "the labels are the numbers 0 to 1")
def label_names_that_do_not_fit_when_loading(folder):
    change_json(folder / "classifier" / "config.json", id2label={"0": "good"})
    return BertClassifier.load(folder / "classifier")


@warns(KbertWarning, "is not the published one")
def a_package_with_other_weights(folder):
    package = folder / "site" / "kbert_test_weights"
    shutil.copytree(folder / "model", package / "model")
    (package / "__init__.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(package.parent))
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "cache"))
        known = packages.WeightsPackage("kbert_test_weights", "model", "kbert-test-weights", {"config.json": "0" * 64})
        patch.setitem(packages.PACKAGES, "owner/name", known)
        with pytest.raises(FileNotFoundError):
            resolve_folder("owner/name")


# --- Training and pre-training


# So high a rate that the second step is not finite.
DIVERGES = {"learning_rate": 1e38, "warmup": 0, "batch_size": 2, "max_length": 16, "dtype": "float32"}


@warns(UserWarning, "The loss of step 2 or its gradients were not finite")
def a_skipped_step_of_a_fit(folder):
    classifier = BertClassifier(weights=folder / "model", epochs=1, **DIVERGES)
    with pytest.raises(DivergedError):  # by what the first step has left
        classifier.fit(["the quick fox", "the lazy dog"] * 2, [0, 1] * 2)


@warns(UserWarning, "The loss of step 2 or its gradients were not finite")
def a_skipped_step_of_pre_training(folder):
    pretrainer = BertPretrainer(weights=folder / "model", max_steps=3, nsp=False, **DIVERGES)
    with pytest.raises(DivergedError):
        pretrainer.fit(Corpus(["the quick fox", "the lazy dog"] * 20, split="lines"))


@warns(VocabularyWarning, "has 30 entries, and the embedding table of its config.json has 100 rows")
def a_vocabulary_with_fewer_entries_than_the_table(folder):
    (folder / "tokenizer.json").write_text('{"model": {}}')
    return check_vocabulary(30, 100, folder)


@warns(NewWordsWarning, "new_words=5, and the vocabulary has no unused tokens")
def more_new_words_than_places(folder):
    pretrainer = BertPretrainer(weights=folder / "model", max_steps=1, nsp=False, new_words=5, max_length=16)
    return pretrainer.fit(Corpus(["the quick fox"], split="lines"))


@warns(KbertWarning, "was replaced by U+FFFD, here for the first time, 2 times in all")
def text_that_is_not_utf_8(folder):
    (folder / "text.txt").write_bytes(b"the quick \xff\n\xffbrown fox\n")
    return list(Corpus(folder / "text.txt", split="lines", errors="replace"))


# --- X and y


@warns(MissingTextWarning, "2 of the texts in 3 rows are missing")
def texts_that_are_missing(folder):
    texts = ["the fox", None, ""]
    tell_missing(TextReader(), [RowsRead(texts, text_columns(texts))])


@warns(MissingTextWarning, "1 of the texts in 2 rows is missing")
def a_missing_text_in_a_prediction(folder):
    return BertClassifier.load(folder / "classifier").predict(["the fox", None])


@warns(MissingTextWarning, "Of the first rows of which this is true: 1 of the texts in 2 rows is missing")
def a_missing_text_in_a_table(folder):
    (folder / "rows.csv").write_text('text\nthe fox\n""\n')
    return predict_table(BertClassifier.load(folder / "classifier"), folder / "rows.csv", folder / "out.csv")


@warns(DataConversionWarning, "A column-vector y was passed")
def a_column_of_labels(folder):
    return label_column([["good"], ["bad"]], 2)


@warns(DataConversionWarning, "A column-vector y was passed")
def a_column_of_labels_in_a_score(folder):
    return BertClassifier.load(folder / "classifier").score(["the fox", "the dog"], [["good"], ["bad"]])


# --- Data sets


@warns(DatasetWarning, "answers are not in the context")
def answers_that_are_not_in_their_contexts(folder):
    answer = {"text": "a fox", "answer_start": 2}
    paragraph = {"context": "the fox", "qas": [{"id": "1", "question": "who?", "answers": [answer]}]}
    (folder / "train-v1.1.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    return datasets.read_squad(folder / "train-v1.1.json")


@warns(DatasetWarning, "are left out")
def rows_that_are_broken_in_two(folder):
    (folder / "qqp").mkdir()
    rows = ["id\tquestion1\tquestion2\tis_duplicate", "0\ta\tb\t1", "1\ta", "b\t0"]
    (folder / "qqp" / "train.tsv").write_text("\n".join(rows))
    return datasets.read_glue("qqp", "train", folder)


@warns(DatasetWarning, "holds only some of the rows")
def a_file_with_some_of_the_rows(folder):
    (folder / "cola").mkdir()
    (folder / "cola" / "train_1_partial.tsv").write_text("sentence\tlabel\na fox\t1\n")
    return datasets.load("cola", "train", folder)


@warns(DatasetWarning, "the site takes whole files only")
def a_submission_with_too_few_rows(folder):
    return datasets.write_glue_submission("rte", ["entailment"], folder)


@warns(DatasetWarning, "of 2 records 1 left out because")
def annotations_that_were_rejected(folder):
    row = {"text": "the fox", "spans": [], "_task_hash": 1}
    return datasets.read_entities([{**row, "answer": "accept"}, {**row, "answer": "reject"}], "prodigy")


# --- Estimators

TEXTS = ["the quick brown fox", "jumps over the lazy dog", "the fox", "a dog", "quick", "lazy"]
LONG = " ".join(["the quick brown fox"] * 9)
LABELS = [0, 1] * 3
ANSWERS = [("quick", 4)] * 6


def toy_of(estimator, folder, **parameters):
    """An estimator on the toy encoder. Its learning rate is too low to learn anything, and it need not."""
    common = dict(weights=folder / "model", max_length=24, epochs=1, learning_rate=1e-9, random_state=0)
    return estimator(**{**common, **parameters})


@warns(MissingTextWarning, "1 of the words in 2 rows is empty")
def empty_words(folder):
    words = [["the", ""], ["fox"]]
    return BertVectorizer(weights=folder / "model", level="word", max_length=24).fit(words)


@warns(LabelsWarning, "5 of 6 spans of y")
def spans_that_end_inside_a_word(folder):
    return toy_of(BertTagger, folder).fit(TEXTS, [[(0, 2, "PART")]] + [[(0, 1, "PART")]] * 5)


@warns(LabelsWarning, "5 of 6 rows have an I- tag that continues no entity")
def tags_that_decoding_never_gives(folder):
    words = [["the", "fox"]] * 6
    return toy_of(BertTagger, folder, decoding="bio").fit(words, [["B-X", "I-X"]] + [["O", "I-X"]] * 5)


@warns(LabelsWarning, "they mark no entities: each is learned as the tag of one word. 'L-X' is a tag of BIOES or BILOU")
def tags_of_another_scheme(folder):
    return toy_of(BertTagger, folder).fit([["the", "fox", "dog"]] * 6, [["B-X", "L-X", "O"]] * 6)


@warns(TruncationWarning, "1 of 6 rows have more than max_length=24 tokens")
def texts_that_are_cut_in_fit(folder):
    return toy_of(BertRegressor, folder, long_text="truncate").fit([*TEXTS[:5], LONG], LABELS)


@warns(TruncationWarning, "1 of 8 rows have more than max_length=24 tokens and were cut (12%")
def texts_that_are_cut_in_an_eval_set(folder):
    cutting = toy_of(BertClassifier, folder, long_text="truncate")
    return cutting.fit(TEXTS, LABELS, eval_set=(["the fox", LONG], [0, 1]))


@warns(TruncationWarning, "1 of 1 rows have more than max_length=24 tokens")
def texts_that_are_cut_in_predict(folder):
    return BertClassifier.load(folder / "classifier").set_params(max_length=24, long_text="truncate").predict([LONG])


@warns(TruncationWarning, "1 of 1 rows have more than max_length=24 tokens")
def texts_that_are_cut_in_a_pipeline(folder):
    vectors = BertVectorizer(weights=folder / "model", max_length=24, long_text="truncate")
    return make_pipeline(vectors, FunctionTransformer()).fit(["the fox"]).transform([LONG])


@warns(TruncationWarning, "1 of 2 rows have more than max_length=24 tokens")
def options_that_are_cut(folder):
    rows = [(LONG, ["the fox", "the dog"]), ("the fox", ["dog", "lazy"])]
    return toy_of(BertMultipleChoice, folder).fit(rows, [0, 1])


@warns(TruncationWarning, "1 of 6 questions have more than 64 word pieces")
def questions_that_are_cut(folder):
    return toy_of(BertQA, folder).fit([(TEXTS[0], TEXTS[0])] * 5 + [(LONG, TEXTS[0])], ANSWERS)


@warns(TruncationWarning, "1 of 2 answers are longer than what two neighbouring windows share")
def answers_that_no_window_holds(folder):
    return toy_of(BertQA, folder).fit([("fox", LONG)] * 2, [(LONG, 0), ("quick", 4)])


@warns(ParameterWarning, "this model was pre-trained on texts of up to 8")
def rows_longer_than_those_of_pre_training(folder):
    shutil.copytree(folder / "model", folder / "short-rows", dirs_exist_ok=True)
    change_json(folder / "short-rows" / "config.json", num_trained_positions=8)
    return toy_of(BertQA, folder, weights=folder / "short-rows").fit([("fox", LONG[:80])] * 6, ANSWERS)


@warns(DatasetWarning, "columns that stand in the names of its folders alone are not read: country.")
def a_table_with_columns_in_the_names_of_folders(folder):
    toy_of(BertClassifier, folder).fit(TEXTS, LABELS).save(folder / "saved")
    table = pd.DataFrame({"text": ["quick", "fox"], "country": ["DE", "FR"]})
    table.to_parquet(folder / "table", partition_cols=["country"])
    return predict_table(folder / "saved", folder / "table", folder / "out.csv")


@warns(
    DatasetWarning,
    "files that may be data are passed over, since their endings say of no format that is read: b.txt.zst, c.zip.",
)
def files_of_a_corpus_that_are_not_read(folder):
    (folder / "texts").mkdir()
    for name in ("a.txt", "b.txt.zst", "c.zip", "README"):
        (folder / "texts" / name).write_text("the quick fox")
    return Corpus(folder / "texts")


@warns(UnknownWordsWarning, "of the letters of the texts stand in words of more than 100 letters, such as 'acgt")
def a_vocabulary_of_unbroken_strings(folder):
    return WordPieceTokenizer.train(["it is acgt", "acgt" * 200])


@warns(ParameterWarning, "Update 1 had no word to predict")
def words_that_do_not_fit_as_a_whole(folder):
    return BertPretrainer(weights=folder / "model", max_steps=1, batch_size=4, whole_word=True).fit(["foooo"] * 4)


@warns(ParameterWarning, 'quantize="int8" takes the scales of its integers from 6 rows')
def an_export_in_int8_from_a_few_rows(folder):
    pytest.importorskip("onnxruntime", reason="pip install 'kbert-learn[onnx]'")
    return toy_of(BertClassifier, folder).fit(TEXTS, LABELS).export(folder / "int8", X=TEXTS, quantize="int8")


@warns(DataConversionWarning, "A column-vector eval_set's y was passed")
def labels_in_a_column_of_an_eval_set(folder):
    return toy_of(BertClassifier, folder).fit(TEXTS, LABELS, eval_set=(["a", "fox"], [[0], [1]]))


@warns(FailedRunWarning, "The run failed")
def a_run_that_fails(folder):
    return toy_of(BertClassifier, folder, learning_rate=10.0, epochs=4).fit(TEXTS * 4, LABELS * 4)


@warns(CheckpointWarning, "checkpoint-000000002 is damaged")
def a_checkpoint_that_is_damaged(folder):
    classifier = toy_of(BertClassifier, folder, epochs=2, batch_size=99, checkpoint=folder / "fit").fit(TEXTS, LABELS)
    (folder / "fit" / "checkpoint-000000002" / "state.npz").write_bytes(b"")
    return classifier.fit(TEXTS, LABELS)


@warns(CheckpointWarning, "began on other devices")
def a_checkpoint_of_other_devices(folder):
    classifier = toy_of(BertClassifier, folder, checkpoint=folder / "fit").fit(TEXTS, LABELS)
    with mock.patch("kbert.estimators.runs.description", lambda distribution: 2):
        return classifier.fit(TEXTS, LABELS)


@warns(UnderfitWarning, "The run learned little")
def a_run_that_is_too_short(folder):
    texts = [f"the {word} fox" for word in ("quick", "lazy")] * 8
    short = toy_of(BertClassifier, folder, head_start="random", epochs=8, learning_rate=1e-2)
    return short.fit(texts, [0, 1] * 8)


@warns(KbertWarning, "PyTorch sees 2 GPUs")
def several_gpus_of_which_one_is_used(folder):
    with mock.patch("torch.cuda.device_count", return_value=2):
        return toy_of(BertClassifier, folder).fit(TEXTS, LABELS)


@warns(FailedRunWarning, "The run failed")
def a_run_that_fails_in_a_search(folder):
    split = ShuffleSplit(1, random_state=0)
    search = GridSearchCV(toy_of(BertClassifier, folder, learning_rate=10.0), {"epochs": [4]}, cv=split, refit=False)
    return search.fit(TEXTS * 8, LABELS * 8)


@warns(IncompleteWarning, "n_steps=8 would bring them nearer")
def scores_of_words_that_do_not_add_up(folder):
    classifier = toy_of(BertClassifier, folder).fit(TEXTS, LABELS)
    for weight in classifier.model_.trainable_variables:
        weight.assign(weight.value * 10)  # far from linear, which two points would do for
    return classifier.explain(TEXTS, n_steps=2)


@warns(LabelsWarning, "y holds 12 different labels in 12 rows")
def labels_that_are_all_different(folder):
    return toy_of(BertClassifier, folder).fit(TEXTS * 2, list("abcdefghijkl"))


@warns(LabelsWarning, 'write y = [labels.split(",") for labels in y]')
def labels_in_one_string(folder):
    return toy_of(BertClassifier, folder).fit(TEXTS, ["a,b", "c"] + ["c,d"] * 4)


@warns(LabelsWarning, '"" is a label of y. If that is not meant, write y = [[label for label in row if label] for row')
def labels_that_are_empty(folder):
    return toy_of(BertClassifier, folder).fit(TEXTS, [row.split(",") for row in ("a,b", "", "b") * 2])


@warns(LabelsWarning, "Each row of y has exactly one label")
def labels_that_are_one_hot(folder):
    return toy_of(BertClassifier, folder).fit(TEXTS, [[1, 0], [0, 1]] * 3)


@warns(ParameterWarning, "tune_thresholds chooses the thresholds of 2 labels by fewer than 5 validation rows")
def thresholds_of_few_rows(folder):
    return toy_of(BertClassifier, folder, tune_thresholds=True).fit(TEXTS, [[1, 1], [0, 1]] * 3)


@warns(LabelsWarning, "y holds 100, and all others are from 0 to 2.")
def a_number_that_is_far_from_the_others(folder):
    return toy_of(BertRegressor, folder).fit(TEXTS * 2, [0, 1, 2, 100, *[0, 1] * 4])


@warns(LabelsWarning, "Column 1 of X tells y")
def labels_in_another_form_in_X(folder):
    X = [(text, label) for text, label in zip(TEXTS * 2, "ab" * 6, strict=True)]
    return toy_of(BertClassifier, folder).fit(X, [0, 1] * 6)


@warns(LabelsWarning, "y has the index of X, in another order")
def labels_in_another_order(folder):
    return toy_of(BertClassifier, folder).fit(pd.Series(TEXTS), pd.Series(LABELS).iloc[::-1])


@warns(LabelsWarning, "y shares 4 of its 6 index labels with X: they seem to be other rows of one table")
def labels_of_other_rows(folder):
    X, y = pd.Series(TEXTS * 2)[:6], pd.Series(LABELS * 2)[2:8]
    return toy_of(BertClassifier, folder).fit(X, y)


@warns(LabelsWarning, "y has no label that the model knows: y has 'GOOD', 'BAD', and the model 'good', 'bad'.")
def labels_that_the_model_does_not_know(folder):
    return BertClassifier.load(folder / "classifier").score(TEXTS, ["GOOD", "BAD"] * 3)


@warns(MissingTextWarning, "2 of 6 rows have the text 'nan' (rows 1, 3): a missing value looks so")
def texts_that_were_missing_values(folder):
    return toy_of(BertClassifier, folder).fit(["nan" if i in (1, 3) else text for i, text in enumerate(TEXTS)], LABELS)


@warns(UnknownWordsWarning, "have words that the vocabulary lacks, such as")
def words_that_the_vocabulary_lacks(folder):
    return toy_of(BertClassifier, folder).fit([*TEXTS[:-1], "the \N{THUMBS UP SIGN}"], LABELS)


@warns(UnknownWordsWarning, "100% of the tokens of the text are [UNK]")
def a_text_in_another_script(folder):
    pretrainer = BertPretrainer(weights=folder / "model", max_steps=1, nsp=False, max_length=16)
    return pretrainer.fit(["\u6c34 \u706b"] * 4)


@warns(UnknownWordsWarning, "of the tokens of X are [UNK]")
def a_score_on_text_in_another_script(folder):
    pretrainer = BertPretrainer(weights=folder / "model", max_length=16, max_steps=1)
    with warnings.catch_warnings(action="ignore"):
        pretrainer.fit(["the quick fox"] * 4)
    return pretrainer.score(["\u6c34 \u706b"] * 4)


@warns(ParameterWarning, "warmup=9 is a number of updates, and max_steps=3: the learning rate stays low")
def a_warmup_to_the_end(folder):
    pretrainer = BertPretrainer(weights=folder / "model", max_steps=3, warmup=9, max_length=16)
    return pretrainer.fit(["the quick fox"] * 4)


@warns(MissingTextWarning, "2 of the 14 texts of X are missing, and are left out (index 'a', 'c').")
def documents_that_are_missing(folder):
    documents = pd.Series([None, TEXTS[0], float("nan"), *TEXTS, *TEXTS[1:]], index=list("abcdefghijklmn"))
    return toy_of(BertPretrainer, folder, nsp=False).fit(documents)


@warns(ParameterWarning, "The texts are names of files")
def names_of_files_as_texts(folder):
    return Corpus([str(folder / "model" / "config.json")])


@warns(ParameterWarning, 'null_threshold="tune" takes a few questions without an answer')
def one_question_without_an_answer(folder):
    return toy_of(BertQA, folder).fit([("fox", TEXTS[0])] * 8, [*ANSWERS, ANSWERS[0], ("", -1)])


@warns(ParameterWarning, "learning_rate=5 is so high")
def a_rate_that_is_too_high(folder):
    return toy_of(BertClassifier, folder, learning_rate=5).fit(TEXTS, LABELS)


# --- Saving


def edited_card(folder):
    """A fitted estimator, and a folder that holds an earlier one whose model card somebody edited."""
    classifier = BertClassifier.load(folder / "classifier")
    classifier.save(folder / "edited")
    card = folder / "edited" / "README.md"
    card.write_text(f"Mine.\n{card.read_text(encoding='utf-8')}", encoding="utf-8")
    return classifier, folder / "edited"


@warns(KbertWarning, "was written or edited by somebody, and is kept")
def a_model_card_that_somebody_edited(folder):
    classifier, edited = edited_card(folder)
    return classifier.save(edited)


@warns(KbertWarning, "on the hub was written or edited by somebody, and is kept")
def a_model_card_on_the_hub_that_somebody_edited(folder):
    classifier, _ = edited_card(folder)
    repository = uploads.Repository("owner/name", None, None, None, frozenset())
    with (
        mock.patch.object(uploads.Repository, "find", return_value=repository),
        mock.patch.object(uploads.Repository, "upload", return_value=("c" * 40, True)),
    ):
        return classifier.push_to_hub("owner/name")


@warns(UserWarning, "not enough memory to record the training step")
def a_gpu_without_room_for_a_graph(folder):
    """A stand-in for a GPU refuses to record."""
    import numpy as np
    import torch

    from kbert.training import cuda_graphs

    steps = cuda_graphs.RecordedSteps(torch.device("cpu"))
    graph, no_room = "torch.cuda.graph", torch.OutOfMemoryError("CUDA out of memory")
    with (
        mock.patch.object(cuda_graphs, "pinned", torch.from_numpy),
        mock.patch.multiple("torch.cuda", CUDAGraph=mock.Mock(), Stream=mock.Mock(), current_stream=mock.Mock()),
        mock.patch("torch.cuda.stream"),
        mock.patch(graph, side_effect=no_room),
    ):
        return steps._recorded(lambda *_: None, None, [np.zeros(1, "float32")])


# --- The tests

# The functions of kbert in which a warning of the table above was issued: file and name.
issued_in: set[tuple[str, str]] = set()


@pytest.fixture
def notes_functions(monkeypatch):
    """Lets `issued_in` know where warnings are issued."""
    warn = warnings.warn

    def noting(message, category=None, stacklevel=1, **options):
        frame = sys._getframe(2)  # of what called warn_user
        issued_in.add((frame.f_code.co_filename, frame.f_code.co_name))
        return warn(message, category, stacklevel + 1, **options)

    monkeypatch.setattr(warnings, "warn", noting)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_warning_points_at_the_line_of_the_user(case, toy, tmp_path, notes_functions):
    shutil.copytree(toy, tmp_path, dirs_exist_ok=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        case.trigger(tmp_path)
    found = [warning for warning in caught if case.match in str(warning.message)]
    assert [warning.category for warning in found] == [case.category]
    code = case.trigger.__code__
    assert found[0].filename == __file__
    # A line of the function, not the one above that calls it.
    assert found[0].lineno in {line for _, _, line in code.co_lines() if line is not None}


def test_a_warning_reaches_code_whose_module_has_no_name():
    from kbert.warn import warn_user

    names = {"__name__": None, "warn_user": warn_user}
    exec(compile("def notice():\n    warn_user('look')", "no_module.py", "exec"), names)
    with pytest.warns(UserWarning, match="look") as caught:
        names["notice"]()
    assert caught[0].filename == __file__


def test_a_name_in_a_warning_does_not_steer_the_terminal():
    from kbert.warn import warn_user

    with pytest.warns(UserWarning) as caught:
        warn_user("two lines:\nthe label \x1b[2J\u202e is n\u00f3t 日本")
    assert str(caught[0].message) == "two lines:\nthe label \\x1b[2J\\u202e is n\u00f3t 日本"


def test_every_warning_of_kbert_is_in_the_table():
    if len(issued_in) < 2:
        pytest.skip("goes by what the table's tests have issued: run the whole file")
    functions = set()
    for path in Path(kbert.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name != "warn_user":
                called = {call.func for call in ast.walk(node) if isinstance(call, ast.Call)}
                if any(isinstance(name, ast.Name) and name.id == "warn_user" for name in called):
                    functions.add((str(path), node.name))
    assert not functions - issued_in
