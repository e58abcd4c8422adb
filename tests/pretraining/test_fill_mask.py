"""fill_mask: the rows it gives, the same as transformers, texts as they come, and errors."""

import numpy as np
import pandas as pd
import pytest
from keras import ops

from kbert import BertConfig, BertForPreTraining, WordPieceTokenizer
from kbert.pretraining.fill_mask import fill_mask
from kbert.text.files import SPECIAL_TOKENS, bert_spec
from kbert.weights import load_pretraining

pytestmark = pytest.mark.slow

WORDS = "the cat sat on a mat and dog ran un ##happ ##y [ ] mask sep . !".split()


def _tokenizer(**special_tokens):
    names = {**SPECIAL_TOKENS, **special_tokens}
    pieces = [name for name in names.values() if name is not None] + WORDS
    spec = bert_spec({piece: i for i, piece in enumerate(pieces)}, names["unk"], True, None, True)
    return WordPieceTokenizer(spec, names)


@pytest.fixture(scope="module")
def tokenizer():
    return _tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    """A toy with large numbers, so that its probabilities differ; its table has more rows than there are tokens."""
    config = BertConfig(
        vocab_size=tokenizer.vocab_size + 7,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        initializer_range=0.3,
    )
    return BertForPreTraining(config, seed=1)


@pytest.mark.backend
def test_each_mask_has_a_block_of_rows_the_most_probable_first(model, tokenizer):
    frame = fill_mask(model, tokenizer, "The [MASK] sat on a [MASK].", top_k=3)
    assert list(frame.columns) == ["token", "score", "position"] and list(frame.index) == list(range(6))
    assert frame.position.tolist() == [2] * 3 + [6] * 3
    assert all(isinstance(token, str) and token in tokenizer.vocab for token in frame.token)
    for _, block in frame.groupby("position"):
        assert (np.diff(block.score) <= 0).all() and block.score.between(0, 1).all() and block.token.is_unique


def test_scores_are_the_softmax_at_the_mask(model, tokenizer):
    frame = fill_mask(model, tokenizer, "the [MASK] sat", top_k=1000)
    assert len(frame) == tokenizer.vocab_size  # every token, and none of the rows that have no name
    inputs = tokenizer(["the [UNK] sat"])
    ids = [tokenizer.cls_id, tokenizer.token_to_id("the"), tokenizer.mask_id, tokenizer.token_to_id("sat")]
    inputs = {name: array[:, :5] for name, array in inputs.items()}
    inputs["token_ids"] = np.array([[*ids, tokenizer.sep_id]], "int32")
    places = {"first_positions": [[0]], "masked_positions": [[2]]}
    outputs = model({**inputs, **{name: np.array(value, "int32") for name, value in places.items()}})
    logits = ops.convert_to_numpy(outputs["mlm_logits"])[0, 0]
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    ids = [tokenizer.token_to_id(token) for token in frame.token]
    np.testing.assert_allclose(frame.score, expected[ids], rtol=0, atol=1e-5)


@pytest.mark.parametrize("nsp", [True, False])
def test_models_with_and_without_the_next_sentence_fill_in_alike(model, tokenizer, nsp):
    other = BertForPreTraining(model.config, nsp=nsp, seed=1)
    text = "a [MASK] ran"
    pd.testing.assert_frame_equal(fill_mask(other, tokenizer, text), fill_mask(model, tokenizer, text))


@pytest.mark.parametrize(
    "text, positions",
    [
        ("[MASK]", [1]),
        ("[MASK][MASK]", [1, 2]),
        ("  [MASK] ! [MASK]", [1, 3]),
        ("un[MASK]", [2]),
        ("the cat [SEP] [mask] [MASK]", [9]),  # in five and three pieces: [ sep ] [ mask ]
        ("unhappy [MASK] " * 3, [4, 8, 12]),
    ],
)
def test_masks_are_found_wherever_they_stand_and_other_special_tokens_are_text(model, tokenizer, text, positions):
    assert fill_mask(model, tokenizer, text, top_k=1).position.tolist() == positions


def test_a_text_beside_masks_is_tokenised_as_elsewhere(model, tokenizer):
    """The mask's own probabilities say which tokens the model saw."""
    first, second = (fill_mask(model, tokenizer, text) for text in ("The  CAT [MASK]\tsat!", "the cat [MASK] sat !"))
    pd.testing.assert_frame_equal(first, second)


def test_the_mask_is_what_the_vocabulary_calls_it(model):
    tokenizer = _tokenizer(mask="<mask>")
    assert fill_mask(model, tokenizer, "the <mask> sat", top_k=1).position.tolist() == [2]
    with pytest.raises(ValueError, match="no <mask> in the text"):
        fill_mask(model, tokenizer, "the [MASK] sat")


@pytest.mark.parametrize("n", [37, 38])
def test_a_text_is_filled_in_up_to_the_models_length_and_no_further(model, tokenizer, n):
    text = "cat " * n + "[MASK]"  # and [CLS] and [SEP]; 40 positions
    if n == 37:
        assert fill_mask(model, tokenizer, text).position.tolist() == [38] * 5
    else:
        with pytest.raises(ValueError, match="41 tokens.*40 at most"):
            fill_mask(model, tokenizer, text)


def test_a_text_without_a_mask_is_an_error_that_shows_it(model, tokenizer):
    with pytest.raises(ValueError, match=r"no \[MASK\] in the text 'the cat \[mask\]'"):
        fill_mask(model, tokenizer, "the cat [mask]")


def test_a_vocabulary_without_a_mask_is_an_error(model):
    with pytest.raises(ValueError, match="has no mask token"):
        fill_mask(model, _tokenizer(mask=None), "the [MASK] sat")


@pytest.mark.parametrize("text", [None, 3, ["the [MASK]"]])
def test_what_is_no_text_is_an_error(model, tokenizer, text):
    with pytest.raises(TypeError, match=f"text must be a str, got {type(text).__name__}"):
        fill_mask(model, tokenizer, text)


def test_a_lone_surrogate_is_an_error(model, tokenizer):
    with pytest.raises(ValueError, match="surrogate"):
        fill_mask(model, tokenizer, "the \ud800 [MASK]")


@pytest.mark.parametrize("top_k", [0, -1, 2.5, True, None])
def test_top_k_is_a_number_of_rows(model, tokenizer, top_k):
    with pytest.raises(ValueError, match="top_k must be a whole number of at least 1"):
        fill_mask(model, tokenizer, "the [MASK] sat", top_k=top_k)


# === The same as transformers ===

SENTENCES = [
    "Paris is the [MASK] of France.",
    "The [MASK] sat on the [MASK], and the dogs [MASK] away.",
    "[MASK]",
    "Photo[MASK] converts light energy into chemical energy!",
    "\u00bfD\u00f3nde est\u00e1 la [MASK]?",
    "My order #48213-B arrived with a broken lid, two missing [MASK] and somebody else's invoice.",
    "In the end the village kept its school, its post office and one of its two [MASK], which was more than most had "
    "hoped, and the [MASK] of the church said so in his letter to the paper.",
]


@pytest.mark.backend
@pytest.mark.parity
@pytest.mark.filterwarnings("ignore::kbert.errors.NewWeightsWarning")
def test_the_released_model_fills_in_as_transformers_pipeline_does(bert_tiny_folder):
    pytest.importorskip("torch", reason="to compare, run: pip install 'kbert-learn[parity]'")
    transformers = pytest.importorskip(
        "transformers", reason="to compare with it, run: pip install 'kbert-learn[parity]'"
    )
    pipeline = transformers.pipeline("fill-mask", model=str(bert_tiny_folder), top_k=20)
    tokenizer = WordPieceTokenizer.from_pretrained(bert_tiny_folder)
    model = load_pretraining(bert_tiny_folder, nsp=False, dtype="float32")
    for text in SENTENCES:
        theirs = pipeline(text)
        blocks = [theirs] if isinstance(theirs[0], dict) else theirs
        frame = fill_mask(model, tokenizer, text, top_k=20)
        assert len(frame) == 20 * text.count("[MASK]") == 20 * len(blocks)
        for i, block in enumerate(blocks):
            ours = frame[20 * i : 20 * (i + 1)]
            expected = {row["token"]: row["score"] for row in block}
            got = dict(zip(map(tokenizer.token_to_id, ours.token), ours.score, strict=True))
            np.testing.assert_allclose(ours.score, [row["score"] for row in block], rtol=0, atol=1e-4)
            # The same tokens, but for those that are equally probable at the end of the list.
            for token in expected.keys() & got.keys():
                assert got[token] == pytest.approx(expected[token], abs=1e-4)
            assert len(expected.keys() & got.keys()) >= 19
            assert [row["token"] for row in block[:3]] == list(got)[:3]
